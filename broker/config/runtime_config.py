"""Settings that a tool may change while the broker runs (UPDATE_BROKER_CONFIG).

A change counts for this member until it stops; its conf file stays as it is. All keys of one request are changed, or
none.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from broker.config.access_settings import ACCESS_SETTINGS
from broker.config.broker_config import BrokerConfig
from broker.config.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from remoting.configuration import ConfigError, is_changeable, parse_properties, read_value
from remoting.security_switches import check_security_switches

# Read at each use, by objects that BrokerController.configure() reaches.
CHANGEABLE = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "brokerTopicEnable",
        "clusterTopicEnable",
        "defaultTopicQueueNums",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "enablePropertyFilter",
        "fileReservedTime",
        "litePullMessageEnable",
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "pyDLedgerReadIndexEnable",
        "recallMessageEnable",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "storeReplyMessageEnable",
        "timerStopDequeue",
        "useServerSideResetOffset",
    }
)
# RocketMQ's: nobody may point a broker to other files from afar.
BLACK_LIST = frozenset({"brokerConfigPath", "configBlackList"})
_OWN_KEYS = frozenset({*BROKER_SETTINGS, *DLEDGER_SETTINGS, *STORE_SETTINGS, *ACCESS_SETTINGS})


class BlackListedError(ConfigError):
    """A key that no request may change."""


class AlteredConfig(msgspec.Struct, frozen=True):
    config: BrokerConfig
    without_effect: list[str]  # keys of RocketMQ that this broker does not read


def altered_config(config: BrokerConfig, text: str) -> AlteredConfig:
    """`config` with the properties of `text` on top. Raises ConfigError."""
    properties = parse_properties(text, "request")
    if any(item.key in BLACK_LIST for item in properties):
        raise BlackListedError("Can not update config in black list.")
    not_served = [item for item in properties if item.key not in _OWN_KEYS]
    if security := check_security_switches(not_served, True, "broker"):
        raise ConfigError(f"{security[0]}: this broker does not have that")
    values: dict[str, Any] = {}
    store_values: dict[str, Any] = {}
    unused = []
    for item in properties:
        if not is_changeable(item.key, CHANGEABLE, _OWN_KEYS, "broker"):
            unused.append(item.key)
        elif item.key in STORE_SETTINGS:
            setting = STORE_SETTINGS[item.key]
            store_values[setting.field] = read_value(item, setting)
        else:
            setting = BROKER_SETTINGS[item.key]
            values[setting.field] = read_value(item, setting)
    return AlteredConfig(replace(config, **values, store=replace(config.store, **store_values)), unused)
