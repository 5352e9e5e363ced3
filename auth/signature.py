"""The signature of a request: RocketMQ's, of all generations of its access control.

It covers the values of the ext fields, as they were received, and the body. The request's code and the time are no part
of it, so whoever sees a request can send it again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"  # clients up to 4.9.3 write it after they have signed
_V4_9_3: Final = 400


def signed_content(
    ext_fields: Mapping[str, str],
    body: bytes | memoryview,
    version: int,
    unsigned: Collection[str] = (),
) -> bytes:
    """What a client of that version signs. `unsigned`: fields that somebody has added on the way."""
    left_out = {SIGNATURE, *unsigned}
    if version <= _V4_9_3:
        left_out.add(_UNIQUE_KEY_QUERY)
    values = [ext_fields[key] for key in sorted(ext_fields) if key not in left_out]
    # Java, too, writes `?` for what is no character.
    return b"".join(("".join(values).encode(errors="replace"), body))


def sign(content: bytes, secret: str) -> str:
    return base64.b64encode(hmac.digest(secret.encode(), content, hashlib.sha1)).decode()


def is_signature(signature: str, content: bytes, secret: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(signature.encode(errors="replace"), sign(content, secret).encode())
