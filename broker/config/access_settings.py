"""Access control in a broker's conf file: RocketMQ's keys, and from where administration is open without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from auth.conf_values import codes_of, credentials_of, networks_of, super_user_of
from auth.credentials import Credentials
from auth.policy import Network
from auth.user import User, UserType
from remoting.configuration import ConfigError, Setting, switch
from remoting.connection_limits import ADMISSION_SECONDS

ADMIN_FROM_KEY: Final = "pyDLedgerAdminFrom"


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True):
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    authentication_whitelist: frozenset[int] = frozenset()  # request codes
    authorization_whitelist: frozenset[int] = frozenset()
    init_authentication_user: User | None = None
    inner_client_credentials: Credentials | None = None  # with which the broker asks others
    admin_from: tuple[Network, ...] = ()  # beside loopback; counts while authorization is off

    def __post_init__(self) -> None:
        # RocketMQ would take the name of a user for a proof of it.
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError("authorizationEnabled=true needs authenticationEnabled=true")

    @property
    def admission_seconds(self) -> float:
        """How long a connection may be without a user; 0: for ever."""
        return ADMISSION_SECONDS if self.authentication_enabled else 0.0

    @property
    def conf_users(self) -> tuple[User, ...]:
        """Super users until the table of users has one."""
        inner = self.inner_client_credentials
        users = [self.init_authentication_user]
        if inner is not None:
            users.append(User(inner.access_key, inner.secret_key, UserType.SUPER))
        return tuple(user for user in users if user is not None)


ACCESS_SETTINGS: Mapping[str, Setting] = {
    "authenticationEnabled": switch("authentication_enabled"),
    "authorizationEnabled": switch("authorization_enabled"),
    "authenticationWhitelist": Setting("authentication_whitelist", codes_of, "request codes, joined by ,"),
    "authorizationWhitelist": Setting("authorization_whitelist", codes_of, "request codes, joined by ,"),
    "initAuthenticationUser": Setting(
        "init_authentication_user", super_user_of, '{"username":"...","password":"..."}', is_secret=True
    ),
    "innerClientAuthenticationCredentials": Setting(
        "inner_client_credentials", credentials_of, '{"accessKey":"...","secretKey":"..."}', is_secret=True
    ),
    ADMIN_FROM_KEY: Setting(
        "admin_from", networks_of, "addresses or networks such as 10.0.0.0/8, joined by ,"
    ),
}
