"""Access key and secret with which a client, a tool or a server signs its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from auth.signature import ACCESS_KEY, SIGNATURE, sign, signed_content
from auth.user import MASK


class UnsignedRequest(Protocol):
    """What is signed of a command of Remoting."""

    ext_fields: dict[str, str]

    @property
    def body(self) -> bytes | memoryview: ...

    @property
    def version(self) -> int: ...


class Credentials(msgspec.Struct, frozen=True):
    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, {MASK})"

    def signed(self, ext_fields: Mapping[str, str], body: bytes | memoryview, version: int) -> dict[str, str]:
        """The fields with access key and signature, as a server of RocketMQ wants them."""
        fields = {**ext_fields, ACCESS_KEY: self.access_key}
        fields[SIGNATURE] = sign(signed_content(fields, body, version), self.secret_key)
        return fields

    def sign(self, command: UnsignedRequest) -> None:
        """Put access key and signature into a request that is about to leave. One that leaves again is signed again."""
        command.ext_fields = self.signed(command.ext_fields, command.body, command.version)
