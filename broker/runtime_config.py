"""Settings that a tool may change while the broker runs (UPDATE_BROKER_CONFIG).

A change counts for this member until it stops; its conf file stays as it is. All keys of one request are changed, or
none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.broker_config import BrokerConfig
from broker.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from remoting.configuration import ConfigError, parse_properties, read_value, refuse_unchangeable

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
    if any(item.key in BLACK_LIST for item in properties):
        raise BlackListedError("Can not update config in black list.")
    values: dict[str, Any] = {}
    for item in properties:
        refuse_unchangeable(item.key, CHANGEABLE, _OWN_KEYS, "broker")
        setting = BROKER_SETTINGS[item.key]
        values[setting.field] = read_value(item, setting)
    return replace(config, **values)
