"""What the keys of access control in a conf file say. Each function raises ValueError for what it cannot read."""

from __future__ import annotations

import json

from auth.credentials import Credentials
from auth.policy import Network, parse_network
from auth.user import User, UserType


def networks_of(text: str) -> tuple[Network, ...]:
    """`10.0.0.0/8,192.168.1.7`; a semicolon joins as well."""
    return tuple(parse_network(part) for part in text.replace(";", ",").split(",") if part.strip())


def codes_of(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part.strip())


def super_user_of(text: str) -> User | None:
    """`{"username":"...","password":"..."}`; None for an empty text."""
    return User(*_texts(json.loads(text), "username", "password"), UserType.SUPER) if text else None


def credentials_of(text: str) -> Credentials | None:
    """`{"accessKey":"...","secretKey":"..."}`; None for an empty text."""
    return Credentials(*_texts(json.loads(text), "accessKey", "secretKey")) if text else None


def users_of(text: str) -> tuple[User, ...]:
    """`[{"username":"...","password":"...","userType":"Super"}]`; without a type a normal one."""
    found = json.loads(text) if text else []
    if not isinstance(found, list):
        raise ValueError
    return tuple(
        User(*_texts(item, "username", "password"), UserType(item.get("userType", UserType.NORMAL)))
        for item in found
    )


def _texts(found: object, first: str, second: str) -> tuple[str, str]:
    values = [found.get(key, "") for key in (first, second)] if isinstance(found, dict) else [""]
    if not all(isinstance(value, str) and value.strip() for value in values):
        raise ValueError
    return values[0], values[1]
