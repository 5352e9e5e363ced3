"""Brokers, as a tool looks at and changes them. Each answers for itself, followers too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from mqclient.admin.admin_calls import AdminCalls, AdminError
from mqclient.admin_results import (
    BrokerConsumeProgress,
    BrokerMember,
    DamagedRange,
    DayCounts,
    GroupMember,
    LeadershipTransferred,
    RepairProgress,
    ScrubProgress,
)
from remoting.bodies import admin_bodies
from remoting.bodies.bodies import ClusterInfo, KVTable
from remoting.codes import RequestCode
from remoting.configuration import format_properties
from remoting.headers import admin_headers

CONSUME_STATS_TIMEOUT_S = 50.0  # all groups of a broker


class BrokerAdmin:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def clusters(self) -> ClusterInfo:
        """As the NameServer has them: brokers by name with their addresses, and the names in each cluster."""
        return await self._calls.cluster_info()

    async def members(self, cluster: str = "") -> list[BrokerMember]:
        """Every broker with what it says of itself."""
        places = await self._places(cluster)
        infos = await asyncio.gather(*(self._info_of(address) for *_, address in places))
        now_ms = time.time_ns() // 1_000_000
        return [
            BrokerMember(
                cluster=name,
                broker=broker,
                id=broker_id,
                address=address,
                version=info.get("brokerVersionDesc"),
                in_tps=_first_rate(info.get("putTps")),
                out_tps=_first_rate(info.get("getTransferredTps")),
                disk_used=_number(info.get("commitLogDiskRatio")),
                hours=_hours_since(info.get("earliestMessageTimeStamp"), now_ms),
                active=info.get("brokerActive") == "true",
            )
            for (name, broker, broker_id, address), info in zip(places, infos, strict=True)
        ]

    async def day_counts(self, cluster: str = "") -> list[DayCounts]:
        """What each broker took in and gave out yesterday and today; 0 for one that does not answer."""
        places = await self._places(cluster)
        infos = await asyncio.gather(*(self._info_of(address) for *_, address in places))

        def between(info: Mapping[str, str], kind: str, first: str, last: str) -> int:
            return _count(info.get(f"{kind}Total{last}")) - _count(info.get(f"{kind}Total{first}"))

        return [
            DayCounts(
                name, broker, broker_id,
                between(info, "msgPut", "YesterdayMorning", "TodayMorning"),
                between(info, "msgGet", "YesterdayMorning", "TodayMorning"),
                between(info, "msgPut", "TodayMorning", "TodayNow"),
                between(info, "msgGet", "TodayMorning", "TodayNow"),
            )
            for (name, broker, broker_id, _), info in zip(places, infos, strict=True)
        ]  # fmt: skip

    async def runtime_info(self, address: str) -> dict[str, str]:
        answer = await self._calls.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(sorted(answer.read(KVTable).table.items()))

    async def ha_status(self, address: str) -> dict[str, Any]:
        return (await self._calls.call(address, RequestCode.GET_BROKER_HA_STATUS)).json_object()

    async def config(self, address: str) -> dict[str, str]:
        answer = await self._calls.call(address, RequestCode.GET_BROKER_CONFIG)
        return dict(sorted(answer.properties().items()))

    async def update_config(self, address: str, values: Mapping[str, str]) -> str:
        """Changes all of them, or none when one cannot be changed. Returns what the broker remarks, mostly nothing."""
        body = format_properties(values.items()).encode()
        return (await self._calls.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)).remark

    async def consume_progress(
        self, address: str, *, is_order: bool = False, timeout_s: float = CONSUME_STATS_TIMEOUT_S
    ) -> list[BrokerConsumeProgress]:
        """Each queue of each group; with `is_order` only of topics that are read in order."""
        answer = await self._calls.call(
            address,
            RequestCode.GET_BROKER_CONSUME_STATS,
            admin_headers.GetConsumeStatsInBrokerHeader(is_order=is_order),
            timeout_s=timeout_s,
        )
        rows = [
            BrokerConsumeProgress(
                queue.topic, group, queue.broker_name, queue.queue_id,
                offsets.broker_offset, offsets.consumer_offset,
                diff=offsets.broker_offset - offsets.consumer_offset,
                last_time_ms=offsets.last_timestamp or None,
            )
            for item in answer.read(admin_bodies.ConsumeStatsList).consume_stats_list
            for group, found in item.items()
            for stats in found
            for queue, offsets in stats.offset_table.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda row: (row.topic, row.group, row.broker, row.queue))

    async def delete_expired_commit_log(self, address: str) -> None:
        """Has files go now that are past their time; returns before they are gone."""
        await self._calls.call(address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def clean_expired_consume_queue(self, address: str) -> None:
        """Has files of queues go of whose messages none is left; returns before they are gone."""
        await self._calls.call(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topic(self, address: str) -> None:
        """Has files of queues go whose topic was deleted; returns before they are gone."""
        await self._calls.call(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def transfer_leadership(self, address: str, transferee_id: str = "") -> LeadershipTransferred:
        """Has the leader at `address` hand over to that member, else to the one that lacks least; waits for it."""
        header = admin_headers.LeadershipTransferRequestHeader(transferee_id=transferee_id or None)
        answer = await self._calls.call(address, RequestCode.LEADERSHIP_TRANSFER, header)
        body = answer.read(admin_bodies.LeadershipTransferResponseBody)
        return LeadershipTransferred(address, body.leader_id, body.term)

    async def scrub(self, address: str) -> ScrubProgress:
        """Has a member read again all that it has, beginning now unless it is at it; returns at once."""
        return await self._scrub(address, begin=True)

    async def scrub_status(self, address: str) -> ScrubProgress:
        return await self._scrub(address, begin=False)

    async def _scrub(self, address: str, *, begin: bool) -> ScrubProgress:
        header = admin_headers.ScrubRequestHeader(begin=begin)
        answer = await self._calls.call(address, RequestCode.SCRUB, header)
        return _scrub_progress(address, answer.read(admin_bodies.ScrubResponseBody))

    async def repair_status(self, address: str) -> RepairProgress:
        """What a member knows to be damaged on its disk, and how far the repair is."""
        answer = await self._calls.call(address, RequestCode.REPAIR_STATUS)
        body = answer.read(admin_bodies.RepairStatusResponseBody)
        return RepairProgress(
            address,
            [
                DamagedRange(
                    told.first_index,
                    told.last_index,
                    told.first_byte,
                    told.last_byte,
                    tuple(told.files),
                    told.since_ms,
                    told.stage,
                    told.peer,
                    told.refusals,
                    told.repaired_bytes,
                    told.retry_ms,
                )
                for told in body.ranges
            ],
            body.repaired_ranges,
            body.repaired_bytes,
            _scrub_progress(address, body.scrub),
        )

    async def group_members(self, address: str) -> list[GroupMember]:
        """Voters and learners of the group, as the broker at `address` knows them. Ask the leader: others may lag."""
        answer = await self._calls.call(address, RequestCode.LIST_MEMBERS)
        body = answer.read(admin_bodies.ListMembersResponseBody)
        return [
            GroupMember(
                member.id,
                member.role if body.is_committed else f"{member.role}, not committed",
                member.id == body.leader_id,
                member.address,
                member.acknowledged,
                member.disk,
            )
            for member in body.members
        ]

    async def add_member(self, address: str, member_id: str, member_address: str) -> None:
        """Has the leader at `address` take a member into the group; returns when that is committed. It is a learner
        until it holds what the others hold, then a voter. `member_address`: of its port for peers.
        """
        header = admin_headers.AddMemberRequestHeader(member_id=member_id, address=member_address)
        await self._calls.call(address, RequestCode.ADD_MEMBER, header)

    async def remove_member(self, address: str, member_id: str) -> None:
        """Has the leader at `address` take a member out of the group; returns when that is committed."""
        header = admin_headers.RemoveMemberRequestHeader(member_id=member_id)
        await self._calls.call(address, RequestCode.REMOVE_MEMBER, header)

    async def addresses(self, cluster: str = "") -> list[str]:
        return await self._calls.members(cluster)

    async def leaders(self, cluster: str = "") -> list[str]:
        """Who takes changes, group by group. Raises AdminError when a group has nobody now."""
        return await self._calls.leaders(cluster)

    async def _places(self, cluster: str) -> list[tuple[str, str, int, str]]:
        groups = await self._calls.groups(cluster)
        places = [
            (group.cluster, group.broker_name, broker_id, address)
            for group in groups
            for broker_id, address in group.broker_addrs.items()
        ]
        return sorted(places)

    async def _info_of(self, address: str) -> dict[str, str]:
        """Nothing of one that does not answer: the others are to be seen all the same."""
        try:
            return await self.runtime_info(address)
        except AdminError:
            return {}


def _scrub_progress(address: str, body: admin_bodies.ScrubResponseBody) -> ScrubProgress:
    last = body.last_round
    return ScrubProgress(
        address,
        under_way=body.round is not None,
        round_bytes=body.round.bytes_read if body.round is not None else 0,
        size=body.size,
        rounds=body.rounds,
        faults=body.faults,
        mended=body.mended,
        last_round_ms=last.ended_ms if last is not None else None,
        last_round_faults=last.faults if last is not None else None,
        bytes_per_second=body.bytes_per_second,
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _first_rate(text: str | None) -> float | None:
    """Of the last sample; the last minute's and the last hour's follow it."""
    return _number(text.split()[0]) if text and text.strip() else None


def _hours_since(text: str | None, now_ms: int) -> float | None:
    stored_ms = _number(text)
    return round((now_ms - stored_ms) / 3_600_000, 2) if stored_ms and stored_ms > 0 else None
