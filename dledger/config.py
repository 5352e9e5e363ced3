"""Settings of one member of a replicated log, checked where they are made. Who reads files is above.

Default values carry their reason; names end in their unit.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

import msgspec

from dledger.cluster_secrets import NO_CLUSTER_SECRET, ClusterSecrets
from dledger.core.member_config import MemberConfig
from dledger.core.messages import PeerId
from dledger.errors import DLedgerConfigError
from dledger.log.config import LogConfig
from dledger.scrubber import DEFAULT_BYTES_PER_SECOND, DEFAULT_PAUSE_MS
from remoting.address import Address, AddressError, check_diallable, is_loopback, parse_address

__all__ = ["Address", "DLedgerConfig", "FlushMode", "parse_address", "parse_peers"]

_PAGE_SIZE = 4096
_FRAME_HEADER_ROOM = 65_536  # of the peer protocol's frames
_NO_DIALS: Mapping[PeerId, Address] = MappingProxyType({})


class FlushMode(Enum):
    """When a replica counts as holding an entry (RocketMQ's `flushDiskType`)."""

    SYNC_FLUSH = "SYNC_FLUSH"  # fdatasync of it is done
    ASYNC_FLUSH = "ASYNC_FLUSH"  # it is handed to the page cache


def parse_peers(text: str) -> dict[PeerId, Address]:
    """DLedger's `n0-host:port;n1-host:port;…`, in its order: an id ends at the first hyphen, a host may have more.

    Raises DLedgerConfigError.
    """
    peers: dict[PeerId, Address] = {}
    for item in text.split(";"):
        if not item.strip():
            continue
        peer_id, dash, address = item.strip().partition("-")
        if not dash or not peer_id:
            raise DLedgerConfigError(f"peer {item!r} does not begin with an id and a hyphen")
        if peer_id in peers:
            raise DLedgerConfigError(f"peer {peer_id!r} is named twice in {text!r}")
        try:
            peers[peer_id] = parse_address(address)
            check_diallable(peers[peer_id].host)
        except AddressError as error:
            raise DLedgerConfigError(f"peer {item!r}: {error}") from None
    if not peers:
        raise DLedgerConfigError(f"{text!r} names no peer")
    return peers


class DLedgerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Raises DLedgerConfigError for what cannot be."""

    group: str  # dLegerGroup
    self_id: PeerId  # dLegerSelfId
    peers: Mapping[PeerId, Address]  # dLegerPeers: all voters and their Raft ports, this one among them
    directory: str  # the `dledger-<id>` directory: data/ index/ pydledger/
    # pyDLedgerClusterSecret; empty only where all peers are on the loopback interface.
    cluster_secrets: ClusterSecrets = NO_CLUSTER_SECRET
    # Other addresses to reach a peer's Raft port by, e.g. a proxy's.
    peer_dial: Mapping[PeerId, Address] = msgspec.field(default_factory=lambda: _NO_DIALS)
    bind: Address | None = None  # where to listen, if not at the own address of `peers`

    flush_mode: FlushMode = FlushMode.SYNC_FLUSH
    # ASYNC_FLUSH, as RocketMQ has it: every interval if so much waits, all that waits every thorough one.
    flush_interval_ms: int = 500
    flush_size_min: int = 4 * _PAGE_SIZE
    flush_thorough_interval_ms: int = 10_000

    data_file_size: int = 1 << 30  # bytes, a constant of the group
    index_file_size: int = 5 * 1024 * 1024 * 32  # bytes, DLedger's default: 5 Mi units

    # The core's own settings where its defaults will not do; must name the same members.
    member: MemberConfig | None = None

    # Each member reads all it has, round after round, at this rate; 0: only when it is told to.
    scrub_bytes_per_second: int = DEFAULT_BYTES_PER_SECOND
    scrub_pause_ms: int = DEFAULT_PAUSE_MS  # between two rounds

    tick_interval_ms: int = 10
    # After a write that failed for want of space, it is looked for so often.
    no_space_retry_ms: int = 1000
    dial_backoff_ms_min: int = 20
    dial_backoff_ms_max: int = 500
    handshake_timeout_ms: int = 2000
    # Of entries that come from peers in the place of damaged ones. Fast enough for a data file in half a minute, and
    # little beside what a disk does.
    repair_bytes_per_second: int = 32 << 20
    repair_answer_ms_max: int = 2000  # then another peer is asked
    repair_retry_ms: int = 5000  # when no peer had sound bytes
    link_silence_ms_max: int = 3000  # bytes unacknowledged by the peer's kernel for so long: the link is dead

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            known = ", ".join(self.peers)
            raise DLedgerConfigError(f"dLegerSelfId {self.self_id!r} is not among dLegerPeers {known}")
        if unknown := set(self.peer_dial) - set(self.peers):
            raise DLedgerConfigError(f"a dial address for {min(unknown)!r}, which is not among dLegerPeers")
        if self.cluster_secrets.are_empty and not all(is_loopback(peer.host) for peer in self.peers.values()):
            raise DLedgerConfigError(
                "pyDLedgerClusterSecret is empty; allowed only if all dLegerPeers are loopback addresses"
            )
        if set(self.member_config.peers) != set(self.peers) or self.member_config.self_id != self.self_id:
            raise DLedgerConfigError(f"settings of {self.member} for the members {tuple(self.peers)}")

    @property
    def member_config(self) -> MemberConfig:
        return self.member or MemberConfig(self_id=self.self_id, peers=tuple(self.peers))

    @property
    def log_config(self) -> LogConfig:
        return LogConfig(
            directory=self.directory,
            data_file_size=self.data_file_size,
            index_file_size=self.index_file_size,
        )

    @property
    def listen(self) -> Address:
        return self.bind or self.peers[self.self_id]

    @property
    def frame_size_max(self) -> int:
        """Of one frame of the peer protocol: a full push behind one more entry, and its header."""
        return self.member_config.push_size_max + self.log_config.entry_size_max + _FRAME_HEADER_ROOM

    @property
    def write_buffer_size_max(self) -> int:
        """What a slow peer may let pile up here before its connection is dropped: more than a push window, which may
        end with the largest entry, is nothing that it was asked to take.
        """
        return self.member_config.push_window_size + self.frame_size_max
