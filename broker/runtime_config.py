"""Settings that a tool may change while the broker runs (UPDATE_BROKER_CONFIG).

A change counts for this member until it stops; its conf file stays as it is. All keys of one request are changed, or
none.
"""

from __future__ import annotations

from dataclasses import replace

from broker.broker_config import BrokerConfig
from broker.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from remoting.configuration import ConfigError, parse_properties, read_settings, refuse_unchangeable

# Read at each use, by objects that BrokerController.configure() reaches.
CHANGEABLE = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "defaultTopicQueueNums",
        "litePullMessageEnable",
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "pyDLedgerReadIndexEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "useServerSideResetOffset",
    }
)
# RocketMQ's: nobody may point a broker to other files from afar.
BLACK_LIST = frozenset({"brokerConfigPath", "configBlackList"})
_OWN_KEYS = frozenset({*BROKER_SETTINGS, *DLEDGER_SETTINGS, *STORE_SETTINGS})


class BlackListedError(ConfigError):
    """A key that no request may change."""


def altered_config(config: BrokerConfig, text: str) -> BrokerConfig:
    """`config` with the properties of `text` on top. Raises ConfigError."""
    properties = parse_properties(text, "request")
    keys = [item.key for item in properties]
    if not BLACK_LIST.isdisjoint(keys):
        raise BlackListedError("Can not update config in black list.")
    for key in keys:
        refuse_unchangeable(key, CHANGEABLE, _OWN_KEYS, "broker")
    settings = {key: setting for key, setting in BROKER_SETTINGS.items() if key in CHANGEABLE}
    values, _ = read_settings(properties, settings)
    return replace(config, **values)
