"""Which brokers live, under which addresses, with which topics: all that a NameServer knows.

Pure tables: the caller gives the time and tells of closed channels. NameServers do not talk to each other and
keep nothing on disk; every broker registers with each of them again and again, which is what heals them.

Anybody may register under any name. So nothing that one connection says undoes for good what another one registered:
the other is asked (`RegistrationResult.to_ask`), and what it then confirms stands.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields

from msgspec.structs import replace

from remoting.bodies.bodies import MASTER_ID, BrokerData, DataVersion, QueueData

log = logging.getLogger(__name__)

BROKER_CHANNEL_EXPIRED_MS = 120_000
PERM_WRITE = 2
PERM_READ = 4


def state_version_of(data_version: DataVersion) -> int:
    """A leader's term in a DLedger group, 0 of a plain broker; brokers before 4.9.4 do not say."""
    return data_version.state_version or 0


@dataclass(slots=True)
class BrokerLiveInfo:
    """One member's registration, which dies with its channel or `heartbeat_timeout_ms` after its last word."""

    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    channel_id: int
    ha_server_addr: str
    # Channels that wanted this one's place, with the state version they named, before it confirmed that it is its own.
    refused: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registration:
    """What a REGISTER_BROKER says. `topics` are by name; `enable_acting_master` is None for brokers before 5.0."""

    cluster: str
    broker_addr: str
    broker_name: str
    broker_id: int
    ha_server_addr: str
    data_version: DataVersion
    topics: Mapping[str, QueueData]
    enable_acting_master: bool | None = None
    heartbeat_timeout_ms: int | None = None
    is_confirmed: bool = False  # said after it was asked: the leader of a group has asked its majority


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """What the broker is told: where its master is, empty for a master or when there is none; or why it is refused.

    `to_ask`: channels of brokers whose registration another one contests. Each is to be asked whether it confirms it.
    """

    ha_server_addr: str = ""
    master_addr: str = ""
    refusal: str | None = None
    to_ask: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRoute:
    brokers: Sequence[BrokerData]
    queues: Sequence[QueueData]


def _refusal(
    registration: Registration, channel_id: int, holder: str, live: BrokerLiveInfo, *, is_confirmed: bool
) -> str | None:
    """Why `registration` must not end the one of `holder`."""
    version, held = state_version_of(registration.data_version), state_version_of(live.data_version)
    place = f"broker {registration.broker_name} id {registration.broker_id}"
    if channel_id in live.refused and version <= live.refused[channel_id]:
        if holder == registration.broker_addr:
            return f"{place} is registered by another connection from {holder}: name each NameServer once"
        return f"{place} is held by {holder}, which lives: give one of the two another brokerName"
    if holder != registration.broker_addr and version < held and not is_confirmed:
        # A leader of an older term that does not know yet that it was replaced.
        return f"{place} is held by {holder} with state version {held}, this one has {version}"
    return None


@dataclass(slots=True)
class RouteInfoManager:
    """Invariants: an address stands under one id of one broker name; a broker name without addresses, and queue
    data of such a broker, do not exist.
    """

    topic_queue_table: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, set[str]] = field(default_factory=dict)
    broker_live_table: dict[str, BrokerLiveInfo] = field(default_factory=dict)  # by address
    _asked: set[int] = field(default_factory=set)  # channels whose confirmation counts

    def register_broker(self, registration: Registration, channel_id: int, now_ms: int) -> RegistrationResult:
        """Takes a broker's word, or refuses it: because another member holds that id by a newer state version, or has
        confirmed that it does; or because a stranger brings a single topic (an incremental update that must not stand
        for a full table).
        """
        cluster, name, addr = registration.cluster, registration.broker_name, registration.broker_addr
        broker_id, data_version = registration.broker_id, registration.data_version
        is_confirmed = registration.is_confirmed and channel_id in self._asked
        broker = self.broker_addr_table.get(name)
        addrs = broker.broker_addrs if broker is not None else {}
        holder = addrs.get(broker_id)
        before = self.broker_live_table.get(addr)
        is_own = before is not None and before.channel_id == channel_id
        contested = self._contested(registration, channel_id)
        for other_addr, live in contested.items():
            refusal = _refusal(registration, channel_id, other_addr, live, is_confirmed=is_confirmed)
            if refusal is not None:
                if is_own:
                    self._forget(addr)
                return self._refused(registration, channel_id, refusal, is_final=channel_id in live.refused)
        if holder is None and len(registration.topics) == 1:
            refusal = f"broker {name} id {broker_id} is new here and brings a single topic"
            log.warning("broker refused addr=%s: %s", addr, refusal)
            return RegistrationResult(refusal=refusal)
        refused = before.refused if before is not None and is_own else {}
        if is_confirmed and contested:
            self._asked.discard(channel_id)
            refused |= {live.channel_id: state_version_of(live.data_version) for live in contested.values()}
            self._undo(registration, contested)
            before = None
            broker = self.broker_addr_table.get(name)
            addrs = broker.broker_addrs if broker is not None else {}
        if broker is None:
            broker = BrokerData(cluster=cluster, broker_name=name, broker_addrs=addrs)
            self.broker_addr_table[name] = broker
        self.cluster_addr_table.setdefault(cluster, set()).add(name)
        broker.enable_acting_master = bool(registration.enable_acting_master)
        # A follower that became leader (or the reverse) leaves its old id.
        for other_id in [i for i, a in addrs.items() if a == addr and i != broker_id]:
            del addrs[other_id]
        addrs[broker_id] = addr
        self.broker_live_table[addr] = BrokerLiveInfo(
            now_ms,
            registration.heartbeat_timeout_ms or BROKER_CHANNEL_EXPIRED_MS,
            data_version,
            channel_id,
            registration.ha_server_addr,
            refused,
        )
        if before is None or holder != addr:
            log.info(
                "broker registered name=%s id=%d addr=%s state_version=%d topics=%d",
                name, broker_id, addr, state_version_of(data_version), len(registration.topics),
            )  # fmt: skip
        is_first = holder != addr or before is None or before.data_version != data_version
        self._take_topics(registration, is_first, min(addrs))
        to_ask = tuple(live.channel_id for live in contested.values())
        self._asked.update(to_ask)
        return replace_fields(self._result(broker_id, addrs), to_ask=to_ask)

    def _contested(self, registration: Registration, channel_id: int) -> dict[str, BrokerLiveInfo]:
        """Whose registrations, made by other channels, this one would end: of the same id, of the same address."""
        broker = self.broker_addr_table.get(registration.broker_name)
        holder = broker.broker_addrs.get(registration.broker_id) if broker is not None else None
        addrs = (registration.broker_addr, holder or registration.broker_addr)
        found = {addr: live for addr in addrs if (live := self.broker_live_table.get(addr)) is not None}
        return {addr: live for addr, live in found.items() if live.channel_id != channel_id}

    def _refused(
        self, registration: Registration, channel_id: int, refusal: str, *, is_final: bool
    ) -> RegistrationResult:
        """Asks it as well, unless that is final: it may be the leader, and the holder's state version made up."""
        if is_final:
            return RegistrationResult(refusal=refusal)
        log.warning("broker refused addr=%s: %s", registration.broker_addr, refusal)
        self._asked.add(channel_id)
        return RegistrationResult(refusal=refusal, to_ask=(channel_id,))

    def _undo(self, registration: Registration, contested: Mapping[str, BrokerLiveInfo]) -> None:
        """Forgets what others registered in a broker's place, before the broker registers all of it again."""
        name, addr = registration.broker_name, registration.broker_addr
        for other_addr, live in contested.items():
            if other_addr != addr:
                log.warning(
                    "two living brokers of one name: name=%s id=%d holder=%s refused=%s state_version=%d: "
                    "give one of them another brokerName",
                    name, registration.broker_id, addr, other_addr, state_version_of(live.data_version),
                )  # fmt: skip
            else:
                log.warning("broker was registered by another connection, undone name=%s addr=%s", name, addr)
        self._forget(addr)
        if registration.broker_id == MASTER_ID:
            self._forget_topics(name)

    def _take_topics(self, registration: Registration, is_first: bool, id_min: int) -> None:
        name = registration.broker_name
        is_master = registration.broker_id == MASTER_ID
        is_prime_slave = bool(registration.enable_acting_master) and registration.broker_id == id_min
        if not is_master and not is_prime_slave:
            return
        for topic, queue_data in registration.topics.items():
            queues = self.topic_queue_table.setdefault(topic, {})
            if is_first or name not in queues:
                if is_prime_slave and not is_master:
                    queue_data = replace(queue_data, perm=queue_data.perm & ~PERM_WRITE)
                queues[name] = queue_data

    def _result(self, broker_id: int, addrs: Mapping[int, str]) -> RegistrationResult:
        master_addr = addrs.get(MASTER_ID)
        if broker_id == MASTER_ID or master_addr is None:
            return RegistrationResult()
        master_live = self.broker_live_table.get(master_addr)
        return RegistrationResult(master_live.ha_server_addr if master_live else "", master_addr)

    def unregister_broker(self, broker_addr: str, broker_name: str, channel_id: int) -> bool:
        """Forgets one member, and with the last one the broker and its queues. False: another channel registered it."""
        live = self.broker_live_table.get(broker_addr)
        if live is not None and live.channel_id != channel_id:
            log.warning(
                "broker stays, another connection registered it name=%s addr=%s", broker_name, broker_addr
            )
            return False
        self.broker_live_table.pop(broker_addr, None)
        self._remove(broker_addr, broker_name)
        return True

    def _remove(self, broker_addr: str, broker_name: str) -> None:
        broker = self.broker_addr_table.get(broker_name)
        if broker is None:
            return
        addrs = broker.broker_addrs
        for broker_id in [i for i, addr in addrs.items() if addr == broker_addr]:
            del addrs[broker_id]
            log.info("broker left name=%s id=%d addr=%s", broker_name, broker_id, broker_addr)
        if addrs:
            return
        del self.broker_addr_table[broker_name]
        names = self.cluster_addr_table.get(broker.cluster, set())
        names.discard(broker_name)
        if not names:
            self.cluster_addr_table.pop(broker.cluster, None)
        self._forget_topics(broker_name)

    def _forget_topics(self, broker_name: str) -> None:
        for topic in [t for t, queues in self.topic_queue_table.items() if broker_name in queues]:
            queues = self.topic_queue_table[topic]
            del queues[broker_name]
            if not queues:
                del self.topic_queue_table[topic]

    def channel_closed(self, channel_id: int) -> None:
        """A broker's connection ended: whatever it registered is gone at once."""
        self._asked.discard(channel_id)
        for live in self.broker_live_table.values():
            live.refused.pop(channel_id, None)
        gone = [addr for addr, live in self.broker_live_table.items() if live.channel_id == channel_id]
        for addr in gone:
            self._forget(addr)

    def expire(self, now_ms: int) -> list[int]:
        """Forgets members that have been silent too long; the ids of their channels, to be closed."""
        gone = [
            (addr, live.channel_id)
            for addr, live in self.broker_live_table.items()
            if live.last_update_ms + live.heartbeat_timeout_ms < now_ms
        ]
        for addr, _ in gone:
            log.warning("broker expired addr=%s", addr)
            self._forget(addr)
        return [channel_id for _, channel_id in gone]

    def _forget(self, addr: str) -> None:
        names = [n for n, broker in self.broker_addr_table.items() if addr in broker.broker_addrs.values()]
        self.broker_live_table.pop(addr, None)
        for name in names:
            self._remove(addr, name)

    def heartbeat(self, broker_addr: str, now_ms: int) -> None:
        live = self.broker_live_table.get(broker_addr)
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, broker_addr: str) -> DataVersion | None:
        live = self.broker_live_table.get(broker_addr)
        return live.data_version if live is not None else None

    def topic_route(self, topic: str) -> TopicRoute | None:
        """Brokers and queues of a topic; None when no living broker has it."""
        queues = self.topic_queue_table.get(topic)
        if not queues:
            return None
        brokers = [self.broker_addr_table[name] for name in queues if name in self.broker_addr_table]
        return TopicRoute(brokers, list(queues.values())) if brokers else None

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forgets a topic: everywhere, or at the brokers of one cluster."""
        queues = self.topic_queue_table.get(topic, {})
        names = self.cluster_addr_table.get(cluster, set()) if cluster else set(queues)
        for name in names:
            queues.pop(name, None)
        if not queues:
            self.topic_queue_table.pop(topic, None)

    def topics(self, brokers: Iterable[str] | None = None) -> list[str]:
        """Names of all topics, or of those that any of `brokers` has."""
        if brokers is None:
            return list(self.topic_queue_table)
        names = set(brokers)
        return [topic for topic, queues in self.topic_queue_table.items() if names & queues.keys()]

    def operate_write_perm(self, broker_name: str, is_allowed: bool) -> int:
        """Takes the write permission of all of a broker's topics, or gives it back; how many topics changed."""
        count = 0
        for queues in self.topic_queue_table.values():
            queue_data = queues.get(broker_name)
            if queue_data is not None:
                perm = PERM_READ | PERM_WRITE if is_allowed else queue_data.perm & ~PERM_WRITE
                queues[broker_name] = replace(queue_data, perm=perm)
                count += 1
        return count
