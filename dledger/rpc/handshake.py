"""The first frames of a peer connection: who is there, of which group, and do both know the cluster secret.

    dialler   Hello
    acceptor  Hello, Proof            or Refused
    dialler   Proof                   or Refused
    acceptor  Welcome                 or Refused

A proof is HMAC-SHA256 over both Hellos, each with a fresh nonce, under a label for its direction: it cannot be
replayed, nor reflected to its sender. A side may know several secrets, while one is replaced by another: the acceptor
proves its first one, and the dialler the one that the acceptor has proved. A proof binds the Hellos too, with the
versions that each side speaks: both use the highest that they have in common, so that members of two releases work
together while a group is upgraded. What follows is not authenticated frame by frame; a network that others can write
to needs TLS (dledger/door.py).

Decides who may speak. What a group makes of the identities it sees is dledger/formation.py's. No I/O: nonces come
from the caller.
"""

import hmac
from collections.abc import Sequence
from typing import Annotated

import msgspec

from dledger.core.messages import PeerId
from dledger.errors import HandshakeRefusedError, RemoteProtocolError

MAGIC = "PYDLEDGER"
WIRE_VERSION_MIN = 1
# 2: TIMEOUT_NOW, REPAIR. 3: READ_INDEX.
WIRE_VERSION_MAX = 3
NONCE_SIZE = 32
PROOF_SIZE = 32
GROUP_UUID_SIZE = 32
DISK_UUID_SIZE = 16
# Larger than any Hello; what an unknown host can make us hold.
HANDSHAKE_FRAME_SIZE_MAX = 16 * 1024

_Id = Annotated[str, msgspec.Meta(max_length=64)]
_DiskUuid = Annotated[bytes, msgspec.Meta(min_length=DISK_UUID_SIZE, max_length=DISK_UUID_SIZE)]


class Hello(msgspec.Struct, array_like=True, tag=100, frozen=True, kw_only=True):
    """A reader that is no member (GET, METADATA) has an empty `member_id` and leaves what follows it empty."""

    magic: Annotated[str, msgspec.Meta(max_length=16)] = MAGIC
    wire_version: int = WIRE_VERSION_MIN  # the lowest it speaks: a member of version 1 asks for its own here
    group: Annotated[str, msgspec.Meta(max_length=256)]
    member_id: _Id
    addressee_id: _Id  # whom the dialler means to reach; the acceptor puts the dialler's id
    nonce: Annotated[bytes, msgspec.Meta(min_length=NONCE_SIZE, max_length=NONCE_SIZE)]
    disk_uuid: _DiskUuid | None = None
    # None until the group is formed; then SHA-256 of the sorted `pairs`.
    group_uuid: (
        Annotated[bytes, msgspec.Meta(min_length=GROUP_UUID_SIZE, max_length=GROUP_UUID_SIZE)] | None
    ) = None
    # (member id, disk uuid) of all members as the group was formed.
    pairs: Annotated[tuple[tuple[_Id, _DiskUuid], ...], msgspec.Meta(max_length=64)] = ()
    membership_index: int = -1  # of the last membership entry; -1 is the membership of the conf
    data_file_size: int = 0  # bytes; a constant of the group, for positions must agree
    begin_pos: int = -1  # of the first entry in the log; -1: there never was one
    wire_version_max: int = 1  # the highest it speaks; a member of version 1 says nothing of it
    # Ids of the conf, until the group is formed: all who form it have the same. Earlier releases say nothing.
    peers: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=64)] = ()
    # What the embedder can read that earlier releases cannot; opaque here. Those that know none say nothing.
    features: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=128)] = ()


class _Proof(msgspec.Struct, array_like=True, tag=101):
    mac: Annotated[bytes, msgspec.Meta(min_length=PROOF_SIZE, max_length=PROOF_SIZE)]


class _Welcome(msgspec.Struct, array_like=True, tag=102):
    pass


class _Refused(msgspec.Struct, array_like=True, tag=103):
    reason: Annotated[str, msgspec.Meta(max_length=1024)]


_HandshakeMessage = Hello | _Proof | _Welcome | _Refused
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_HandshakeMessage).decode


class Handshake:
    """One side of the exchange. Feed it headers until `done`; each call returns the headers to send.

    Invariant: `peer` is set only when both sides' proofs were found right (for the acceptor: received, for the
    dialler: also acknowledged), so nothing a stranger says in its Hello is ever acted on.
    """

    def __init__(
        self, own: Hello, *, secrets: Sequence[bytes], members: frozenset[PeerId], dialling: bool
    ) -> None:
        """`own.addressee_id` names the peer when dialling and is filled in from its Hello when not. Of `secrets` the
        first one is proved, and each one is believed.
        """
        self._own = own
        self._secrets = secrets
        self._members = members
        self._dialling = dialling
        self._peer_hello: Hello | None = None
        self._transcript = b""
        self._proof_received = False
        self.peer: Hello | None = None

    @property
    def wire_version(self) -> int:
        """The highest that both sides speak. Once `done`."""
        assert self.peer is not None, "done"
        return min(self._own.wire_version_max, self.peer.wire_version_max)

    @property
    def done(self) -> bool:
        return self.peer is not None

    def start(self) -> list[bytes]:
        return [_encode(self._own)] if self._dialling else []

    def receive(self, header: bytes) -> list[bytes]:
        """Raises RemoteProtocolError, and HandshakeRefusedError when either side refuses; unless the peer did,
        `refusal(error)` is then to be sent.
        """
        try:
            message: _HandshakeMessage = _decode(header)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"no peer handshake: {error}") from error
        match message:
            case Hello():
                return self._hello(message, header)
            case _Proof():
                return self._proof(message)
            case _Welcome():
                return self._welcome()
            case _Refused():
                raise HandshakeRefusedError(message.reason, by_peer=True)

    @staticmethod
    def refusal(error: HandshakeRefusedError) -> bytes:
        return _encode(_Refused(str(error)[:1024]))

    def _hello(self, hello: Hello, header: bytes) -> list[bytes]:
        if self._peer_hello is not None:
            raise RemoteProtocolError("a second Hello")
        self._check(hello)
        self._peer_hello = hello
        if self._dialling:
            self._transcript = _encode(self._own) + header
            return []
        self._own = msgspec.structs.replace(self._own, addressee_id=hello.member_id)
        answer = _encode(self._own)
        self._transcript = header + answer
        return [answer, _encode(_Proof(self._mac(b"acceptor", self._secrets[0])))]

    def _proof(self, proof: _Proof) -> list[bytes]:
        if self._peer_hello is None or self._proof_received:
            raise RemoteProtocolError("a Proof out of turn")
        label = b"acceptor" if self._dialling else b"dialler"
        known = [
            secret for secret in self._secrets if hmac.compare_digest(proof.mac, self._mac(label, secret))
        ]
        if not known:
            raise HandshakeRefusedError("the cluster secrets differ (pyDLedgerClusterSecret)")
        self._proof_received = True
        if self._dialling:
            return [_encode(_Proof(self._mac(b"dialler", known[0])))]
        self.peer = self._peer_hello
        return [_encode(_Welcome())]

    def _welcome(self) -> list[bytes]:
        if not self._dialling or not self._proof_received or self.done:
            raise RemoteProtocolError("a Welcome out of turn")
        self.peer = self._peer_hello
        return []

    def _mac(self, label: bytes, secret: bytes) -> bytes:
        return hmac.digest(secret, label + b"\0" + self._transcript, "sha256")

    def _check(self, hello: Hello) -> None:
        own = self._own
        if hello.magic != MAGIC:
            raise RemoteProtocolError("no peer handshake: wrong magic")
        if hello.wire_version > own.wire_version_max or hello.wire_version_max < own.wire_version:
            raise HandshakeRefusedError(
                f"{hello.member_id!r} speaks the wire versions {hello.wire_version} to {hello.wire_version_max}, "
                f"{own.member_id!r} {own.wire_version} to {own.wire_version_max}: upgrade by way of a release between"
            )
        if hello.group != own.group:
            raise HandshakeRefusedError(f"group {hello.group!r}, this is {own.group!r} (dLegerGroup)")
        if hello.member_id == "" and not self._dialling:
            return
        if hello.member_id == own.member_id:
            raise HandshakeRefusedError(f"both sides call themselves {own.member_id!r} (dLegerSelfId)")
        # One of the same formation is known to those who know newer members than this one.
        is_of_group = hello.group_uuid is not None and hello.group_uuid == own.group_uuid
        if own.member_id and hello.member_id not in self._members and not is_of_group:
            names = ", ".join(sorted(self._members))
            raise HandshakeRefusedError(f"{hello.member_id!r} is not among the members {names} (dLegerPeers)")
        if self._dialling and own.addressee_id not in ("", hello.member_id):
            raise HandshakeRefusedError(
                f"{own.addressee_id!r} was dialled, {hello.member_id!r} answered (dLegerPeers)"
            )
        if not self._dialling and hello.addressee_id != own.member_id:
            raise HandshakeRefusedError(
                f"{hello.member_id!r} dialled {hello.addressee_id!r}, this is {own.member_id!r} (dLegerPeers)"
            )
        if own.member_id == "":
            return
        if hello.data_file_size != own.data_file_size:
            raise HandshakeRefusedError(
                f"data files of {hello.data_file_size} bytes at {hello.member_id!r}, of {own.data_file_size} at "
                f"{own.member_id!r} (mapedFileSizeCommitLog); the group has one size for ever"
            )
        if hello.disk_uuid is None:
            raise RemoteProtocolError(f"{hello.member_id!r} names no disk")
        if None not in (hello.group_uuid, own.group_uuid) and hello.group_uuid != own.group_uuid:
            raise HandshakeRefusedError(
                f"{hello.member_id!r} belongs to another group of the name {own.group!r}: its store was formed "
                "with other members or disks"
            )
