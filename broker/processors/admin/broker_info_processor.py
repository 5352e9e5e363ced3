"""What a broker tells of itself: runtime figures (28), settings (26, and 25 to change some), counts (315), its part in
replication (907).

Every member answers for itself. Settings are changed from this machine alone, as long as there is no access control.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.answers import Request
from broker.broker_stats import BrokerStats, StatsItem, StatsSum
from broker.config.broker_config import BrokerConfig
from broker.config.config_file import shown_settings
from broker.config.runtime_config import BlackListedError, altered_config
from broker.http.member_figures import MemberStatus, member_info
from broker.registration.told_name_servers import ToldNameServers
from broker.waiting.waiting_room import WaitingRoom
from message.names import TIMER_TOPIC
from remoting.bodies import admin_bodies, bodies
from remoting.codes import MQ_VERSION, ResponseCode
from remoting.configuration import ConfigError, format_properties, without_effect
from remoting.fastjson import dumps_fastjson
from remoting.headers import admin_headers
from remoting.headers.headers import CommandHeader
from remoting.security_switches import open_warning

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

BROKER_VERSION = "V5_5_0"
DiskUsage = Callable[[], tuple[int, int]]  # total and free bytes of the store's disk

_GIB = 1 << 30
# Requests are answered in the read that brings them: there are no queues between sockets and processors.
_NO_QUEUES = {
    f"{kind}ThreadPoolQueue{figure}": "0"
    for kind in ("send", "pull", "litePull", "query", "ack")
    for figure in ("Size", "HeadWaitTimeMills")
}


class BrokerInfoProcessor:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        stats: BrokerStats,
        waiting_room: WaitingRoom,
        configure: Callable[[BrokerConfig], None],
        name_servers: ToldNameServers,
        disk_usage: DiskUsage | None,
        member_status: MemberStatus,
        boot_ms: int,
    ) -> None:
        """`configure` brings a changed configuration to all who read it, this included."""
        self.config = config
        self._store = store
        self._stats = stats
        self._waiting_room = waiting_room
        self._configure = configure
        self._name_servers = name_servers
        self._disk_usage = disk_usage
        self._member_status = member_status
        self._boot_ms = boot_ms
        self._change_count = 0

    # Settings

    def get_config(self, request: Request[CommandHeader], now_ms: int) -> None:
        version = {"counter": self._change_count, "stateVersion": 0, "timestamp": self._boot_ms}
        request.answer(
            ext_fields={"version": dumps_fastjson(version).decode()},
            body=format_properties(shown_settings(self.config).items()).encode(),
        )

    def update_config(self, request: Request[CommandHeader], now_ms: int) -> None:
        try:
            altered = altered_config(self.config, bytes(request.body).decode())
        except BlackListedError as error:
            request.answer(ResponseCode.NO_PERMISSION, str(error))
        except (ConfigError, UnicodeDecodeError) as error:
            request.answer(ResponseCode.INVALID_PARAMETER, str(error))
        else:
            note = without_effect(altered.without_effect)
            log.info(
                "settings changed until the next start addr=%s: %r %s",
                request.channel.remote_address,
                bytes(request.body).decode(),
                note or "",
            )
            self._change_count += 1
            self._configure(altered.config)

            def told(remark: str | None) -> None:
                request.answer(remark="; ".join(filter(None, (note, remark))) or None)

            self._name_servers.wait(told)  # a permission goes along with the topics

    # Figures

    def get_runtime_info(self, request: Request[CommandHeader], now_ms: int) -> None:
        request.answer(body=bodies.KVTable(table=self._runtime_info(now_ms)))

    def _runtime_info(self, now_ms: int) -> dict[str, str]:
        store, stats = self._store, self._stats
        found, missed = stats.found_pulls, stats.missed_pulls
        info = {
            "bootTimestamp": str(self._boot_ms),
            "brokerActive": "true" if store.serving else "false",
            "brokerVersion": str(MQ_VERSION),
            "brokerVersionDesc": BROKER_VERSION,
            "commitLogMaxOffset": str(store.reads.confirm_offset),
            "commitLogMinOffset": str(store.reads.min_phy_offset),
            "dispatchBehindBytes": str(store.reads.reput_behind),
            "earliestMessageTimeStamp": str(store.reads.earliest_store_timestamp()),
            "getFoundTps": _rates(found),
            "getMissTps": _rates(missed),
            "getTotalTps": _rates(found, missed),
            "getTransferredTps": _rates(stats.got_total),
            "heldPulls": str(len(self._waiting_room)),
            "msgGetTotalTodayMorning": str(stats.got_at_midnight),
            "msgGetTotalTodayNow": str(stats.got_total.value),
            "msgGetTotalYesterdayMorning": str(stats.got_before),
            "msgPutTotalTodayMorning": str(stats.put_at_midnight),
            "msgPutTotalTodayNow": str(stats.put_total.value),
            "msgPutTotalYesterdayMorning": str(stats.put_before),
            "pageCacheLockTimeMills": "0",
            "putTps": _rates(stats.put_total),
            "role": store.role.value,
            "runtime": _duration(now_ms - self._boot_ms),
            "startAcceptSendRequestTimeStamp": str(self.config.start_accept_send_request_timestamp),
            "term": str(store.term),
            **self._timer_info(now_ms),
            **_NO_QUEUES,
            **member_info(self._member_status()),
        }
        if self.config.open_switches:
            info["openToAll"] = open_warning(self.config.open_switches)
        if self._disk_usage is not None:
            total, free = self._disk_usage()
            info["commitLogDirCapacity"] = f"Total : {total / _GIB:.1f} GiB, Free : {free / _GIB:.1f} GiB."
            ratio = f"{(total - free) / total:.2f}" if total else "0.00"
            info["commitLogDiskRatio"] = info["consumeQueueDiskRatio"] = ratio
        return info

    def _timer_info(self, now_ms: int) -> dict[str, str]:
        timers, stats = self._store.services.timer_message_service, self._stats
        put, delivered = stats.put_nums.get(TIMER_TOPIC, StatsItem()), stats.timers_delivered
        return {
            "timerReadBehind": str((now_ms - timers.read_ms(now_ms)) // 1000),
            "timerOffsetBehind": str(timers.index.behind),
            "timerCongestNum": str(sum(timers.index.counts.values())),
            "timerEnqueueTps": str(put.over(put.last_sample).tps),
            "timerDequeueTps": str(delivered.over(delivered.last_sample).tps),
        }

    def view_stats(
        self, request: Request[admin_headers.ViewBrokerStatsDataRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        items = {
            "TOPIC_PUT_NUMS": self._stats.put_nums,
            "GROUP_GET_NUMS": self._stats.get_nums,
            "BROKER_PUT_NUMS": {self.config.broker_cluster_name: self._stats.put_total},
            "BROKER_GET_NUMS": {self.config.broker_cluster_name: self._stats.got_total},
        }
        item = items.get(header.stats_name, {}).get(header.stats_key)
        if item is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        body = admin_bodies.BrokerStatsData(
            stats_minute=_shown(item.over(item.minute)),
            stats_hour=_shown(item.over(item.hour)),
            stats_day=_shown(item.over(item.day)),
        )
        request.answer(body=body)

    def get_ha_status(self, request: Request[CommandHeader], now_ms: int) -> None:
        """RocketMQ's HA connections do not exist in a Raft group: its members are in the broker's own /status."""
        body = {
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "maxOffset": 0,
                "transferredByteInSecond": 0,
            },
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": self._store.serving,
            "masterCommitLogMaxOffset": self._store.reads.confirm_offset,
        }
        request.answer(body=dumps_fastjson(body))


def _rates(*items: StatsItem) -> str:
    """Per second, over the last sample, the last minute and the last hour."""
    last = sum(item.over(item.last_sample).tps for item in items)
    minute = sum(item.over(item.minute).tps for item in items)
    hour = sum(item.over(item.hour).tps for item in items)
    return f"{last} {minute} {hour}"


def _shown(counted: StatsSum) -> admin_bodies.BrokerStatsItem:
    """RocketMQ's `avgpt` is per time that somebody counted; here each message counts by itself."""
    avgpt = 1.0 if counted.sum else 0.0
    return admin_bodies.BrokerStatsItem(sum=counted.sum, tps=counted.tps, avgpt=avgpt)


def _duration(ms: int) -> str:
    seconds = ms // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
