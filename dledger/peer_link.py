"""One TCP connection between two members, or from a reader: handshake, frames, limits, as an asyncio protocol.

A directed link n0 -> n1 is one connection dialled by n0; it carries n0's requests and n1's answers to them.
So a proxy in front of n1's port for n0 cuts just that direction of asking.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Protocol, cast

from dledger.config import DLedgerConfig
from dledger.core.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PeerId,
    PushRequest,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.errors import HandshakeRefusedError, RemoteProtocolError
from dledger.rpc.codec import REPAIR_WIRE_VERSION, PeerMessage, encode_message, wire_version_of
from dledger.rpc.connection import PeerConnection
from dledger.rpc.handshake import WIRE_VERSION_MAX, WIRE_VERSION_MIN, Handshake, Hello
from dledger.rpc.requests import GetRequest, MetadataRequest, RepairRequest, RepairResponse

log = logging.getLogger(__name__)

# Who a message says it is from: it must be whom the handshake has proved.
_ASKED_BY: Mapping[type, Callable[[PeerMessage], PeerId]] = {
    VoteRequest: attrgetter("candidate_id"),
    HeartBeatRequest: attrgetter("leader_id"),
    TimeoutNow: attrgetter("leader_id"),
    PushRequest: attrgetter("leader_id"),
    RepairRequest: attrgetter("member_id"),
    ReadIndexRequest: attrgetter("member_id"),
}
_ANSWERED_BY: Mapping[type, Callable[[PeerMessage], PeerId]] = {
    VoteResponse: attrgetter("voter_id"),
    HeartBeatResponse: attrgetter("member_id"),
    PushResponse: attrgetter("member_id"),
    RepairResponse: attrgetter("member_id"),
    ReadIndexResponse: attrgetter("member_id"),
}


class LinkOwner(Protocol):
    """What a link tells its server. All calls come from the event loop."""

    def link_made(self, link: "PeerLink") -> None:
        """Connected, nothing known yet. link_lost() will follow."""
        ...

    def link_established(self, link: "PeerLink", peer: Hello) -> None: ...
    def link_received(self, link: "PeerLink", messages: Sequence[tuple[PeerMessage, bytes]]) -> None:
        """All that one read has brought, each with its raw entry bytes."""
        ...

    def link_lost(self, link: "PeerLink") -> None: ...


class PeerLink(asyncio.Protocol):
    """Invariant: messages of a member are handed on only in its name and only in the link's direction."""

    def __init__(
        self,
        owner: LinkOwner,
        config: DLedgerConfig,
        own: Hello,
        *,
        members: frozenset[PeerId],
        dialled: PeerId | None,
    ) -> None:
        """`members` may connect unformed; `dialled` is the peer this connection was made to: None, it was accepted."""
        handshake = Handshake(
            own,
            secrets=config.cluster_secrets.read_again(),
            members=members,
            dialling=dialled is not None,
        )
        self.dialled = dialled
        self.peer_id: PeerId = (
            dialled or ""
        )  # of an accepted one: known with the handshake, empty for a reader
        self.established = False
        self.wire_version = WIRE_VERSION_MIN  # the highest that both sides speak, once established
        self.lost = asyncio.Event()
        self.lost_reason = "closed by the other side"  # once `lost` is set
        self._owner = owner
        self._sender_of = _ASKED_BY if dialled is None else _ANSWERED_BY
        self._config = config
        self._connection = PeerConnection(handshake, frame_size_max=config.frame_size_max)
        self._write_buffer_size_max = config.write_buffer_size_max
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def knows_repairs(self) -> bool:
        """Whether the peer can be asked for entries that are damaged here."""
        return self.wire_version >= REPAIR_WIRE_VERSION

    @property
    def disk_uuid(self) -> bytes | None:
        """Of the peer, as the handshake has shown it; None before, and of a reader."""
        peer = self._connection.peer
        return peer.disk_uuid if peer is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.link_made(self)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A peer cut off without a word (its host gone, a network that swallows) would else hold the
            # connection for minutes of retransmissions, and with it the way back after healing.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._config.link_silence_ms_max)
        self._transport.write(self._connection.data_to_send())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._config.handshake_timeout_ms / 1000, self._handshake_late)

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        try:
            messages = connection.receive_data(data)
            if not self.established:
                self._shaken()
            for message, _ in messages:
                sender_of = self._sender_of.get(type(message))
                if sender_of is None or sender_of(message) != self.peer_id:
                    self._check_reader(message)
            if messages:
                self._owner.link_received(self, messages)
        except (RemoteProtocolError, HandshakeRefusedError) as error:
            self.close(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost.is_set():
            return  # the server has said so already
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if error is not None:
            self.lost_reason = str(error)
        self.lost.set()
        self._owner.link_lost(self)

    def send(self, message: PeerMessage, buffers: Sequence[bytes] = ()) -> None:
        """Buffers are kept until written, not copied. Drops the message when the link is down, or when it is of a
        later wire version than the peer's: to lose it must be no worse than to lose it on the way.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.wire_version < WIRE_VERSION_MAX and wire_version_of(message) > self.wire_version:
            log.debug("not sent to=%s message=%s wire_version=%d", self.peer_id, message, self.wire_version)
            return
        transport.writelines(encode_message(message, buffers))
        if transport.get_write_buffer_size() > self._write_buffer_size_max:
            # A peer that takes nothing: better to begin anew by COMPARE later than to hold all of it here.
            self.abort(
                f"it takes nothing: {transport.get_write_buffer_size()} bytes wait, limit "
                f"{self._write_buffer_size_max}"
            )

    def close(self, reason: str) -> None:
        """Closes after what is queued has been written, the reason of a refusal for example."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.lost_reason = reason
        if not self.established:
            # What is established has its line when it is lost.
            log.warning(
                "link refused peer=%s dialled=%s reason=%s",
                self.peer_id or "?",
                bool(self.dialled),
                reason,
                extra={"per_connection": True},
            )
        transport.write(self._connection.data_to_send())
        transport.close()

    def abort(self, reason: str) -> None:
        if self._transport is not None:
            self.lost_reason = reason
            self._transport.abort()

    def _shaken(self) -> None:
        assert self._transport is not None
        self._transport.write(self._connection.data_to_send())
        peer = self._connection.peer
        if peer is None:
            return
        self.established = True
        self.wire_version = self._connection.wire_version
        self.peer_id = peer.member_id
        if self._timer is not None:
            self._timer.cancel()
        self._owner.link_established(self, peer)

    def _check_reader(self, message: PeerMessage) -> None:
        """A message that is not in the name of the peer: only what readers ask is in nobody's."""
        sender_of = self._sender_of.get(type(message))
        if sender_of is not None:
            raise RemoteProtocolError(
                f"{type(message).__name__} in the name of {sender_of(message)!r} from {self.peer_id!r}"
            )
        if self.dialled is not None or not isinstance(message, GetRequest | MetadataRequest):
            raise RemoteProtocolError(f"{type(message).__name__} against the direction of the connection")

    def _handshake_late(self) -> None:
        self.close(f"no handshake within {self._config.handshake_timeout_ms} ms")
