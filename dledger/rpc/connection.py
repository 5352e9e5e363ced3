"""A peer connection without I/O: the handshake, then bytes in and messages out. Both sides use it.

Its shell writes `data_to_send()` after each call while the handshake goes on, and closes the connection on any
error raised here.
"""

from dledger.errors import HandshakeRefusedError, RemoteProtocolError
from dledger.rpc.codec import FRAME_PREFIX, PeerMessage, decode_message
from dledger.rpc.handshake import HANDSHAKE_FRAME_SIZE_MAX, Handshake, Hello

_SIZE_FIELD = 4
_PREFIX_SIZE = FRAME_PREFIX.size
_TLS_HANDSHAKE = 0x16  # the first byte of each TLS connection


class PeerConnection:
    """Invariant: never holds more than one frame (`frame_size_max`) and one read's bytes that are not consumed."""

    def __init__(self, handshake: Handshake, *, frame_size_max: int) -> None:
        self._handshake = handshake
        self._frame_size_max = frame_size_max
        self._size_max = HANDSHAKE_FRAME_SIZE_MAX  # until both have proved who they are
        # Bytes of an unfinished frame as they came; joined once, when the frame is whole.
        self._chunks: list[bytes] = []
        self._held = 0
        self._wanted = 0
        self._to_send: list[bytes] = [_frame(header) for header in handshake.start()]
        self.established = False

    @property
    def peer(self) -> Hello | None:
        """What the other side proved to be, once established."""
        return self._handshake.peer

    @property
    def wire_version(self) -> int:
        """The highest that both sides speak, once established."""
        return self._handshake.wire_version

    def data_to_send(self) -> bytes:
        """Handshake bytes to be written now."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data

    def receive_data(self, data: bytes) -> list[tuple[PeerMessage, bytes]]:
        """Messages that `data` completes, each with its raw entry bytes (empty for most).

        Raises RemoteProtocolError and HandshakeRefusedError; the connection is then of no more use, but
        `data_to_send()` may hold the reason for the peer.
        """
        held = self._held
        if held:
            self._chunks.append(data)
            held += len(data)
            if held < self._wanted:
                self._held = held
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        messages: list[tuple[PeerMessage, bytes]] = []
        offset, end = 0, len(data)
        wanted = _PREFIX_SIZE
        while end - offset >= _PREFIX_SIZE:
            size, header_size = FRAME_PREFIX.unpack_from(data, offset)
            if size > self._size_max or header_size > size - (_PREFIX_SIZE - _SIZE_FIELD):
                if data[offset] == _TLS_HANDSHAKE and not self.established:
                    raise RemoteProtocolError(
                        "the peer starts a TLS handshake: pyDLedgerPeerTls must be as there"
                    )
                raise RemoteProtocolError(
                    f"frame of {size} bytes with a header of {header_size}, limit {self._size_max}"
                )
            wanted = _SIZE_FIELD + size
            if end - offset < wanted:
                break
            header_end = offset + _PREFIX_SIZE + header_size
            header = data[offset + _PREFIX_SIZE : header_end]
            offset += wanted
            if self.established:
                messages.append((decode_message(header, offset - header_end), data[header_end:offset]))
            else:
                self._shake(header)
            wanted = _PREFIX_SIZE
        self._held = end - offset
        self._wanted = wanted
        if self._held:
            self._chunks.append(data[offset:])
        return messages

    def _shake(self, header: bytes) -> None:
        handshake = self._handshake
        try:
            answers = handshake.receive(header)
        except HandshakeRefusedError as error:
            if not error.by_peer:
                self._to_send.append(_frame(handshake.refusal(error)))
            raise
        self._to_send += [_frame(answer) for answer in answers]
        if handshake.done:
            self.established = True
            self._size_max = self._frame_size_max


def _frame(header: bytes) -> bytes:
    return FRAME_PREFIX.pack(_PREFIX_SIZE - _SIZE_FIELD + len(header), len(header)) + header
