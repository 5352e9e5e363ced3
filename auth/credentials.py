"""Access key and secret with which a client, a tool or a server signs its requests."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from auth.signature import ACCESS_KEY, SIGNATURE, sign, signed_content
from auth.user import MASK


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
