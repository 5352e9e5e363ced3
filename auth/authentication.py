"""Checks of a request: the signature of its user, and the addresses from which administration needs none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from auth.policy import Network, address_of
from auth.signature import ACCESS_KEY, SIGNATURE, is_signature, signed_content
from auth.user import NAME_LENGTH_MAX, User

# Fields of our own: a proxy, which signs as a super user, asks for this client, whose rights count.
CLIENT_USER: Final = "clientUser"
CLIENT_ADDRESS: Final = "clientAddress"


class AccessRefused(Exception):
    """The message is the answer's remark. `rule`: what decided."""

    def __init__(self, remark: str, rule: str) -> None:
        super().__init__(remark)
        self.rule = rule


def authenticate(
    users: Mapping[str, User],
    ext_fields: Mapping[str, str],
    body: bytes | memoryview,
    version: int,
    unsigned: Collection[str] = (),
) -> User:
    """Returns the user that has signed a request. Raises AccessRefused, in RocketMQ's words."""
    user = known_user(users, ext_fields.get(ACCESS_KEY))
    check_signature(user, signed_content(ext_fields, body, version, unsigned), ext_fields.get(SIGNATURE, ""))
    return user


def known_user(users: Mapping[str, User], username: str | None) -> User:
    """Raises AccessRefused."""
    if not username:
        raise AccessRefused("username cannot be null.", "no user is named")
    user = users.get(username)
    if user is None:
        raise AccessRefused(f"User:{username:.{NAME_LENGTH_MAX}} is not found.", "no such user")
    if not user.is_enabled:
        raise AccessRefused(f"User:{username} is disabled.", "the user is disabled")
    return user


def check_signature(user: User, content: bytes, signature: str) -> None:
    """Raises AccessRefused."""
    if not is_signature(signature, content, user.password):
        raise AccessRefused("check signature failed.", "the signature is wrong")


def check_administration(
    request_name: str, source_ip: str, admin_from: Iterable[Network], key: str, server: str
) -> None:
    """Raises AccessRefused for an address beyond this machine that is not in `admin_from`, which `key` sets."""
    address = address_of(source_ip)
    if address is not None and (address.is_loopback or any(address in network for network in admin_from)):
        return
    raise AccessRefused(
        f"{request_name} is administration, which is closed for {source_ip}: put its address into {key} of this "
        f"{server}'s conf, or switch access control on (docs/security.md)",
        key,
    )


def host_of(remote_address: str) -> str:
    """Of `ip:port`, without brackets."""
    return remote_address.rpartition(":")[0].strip("[]")
