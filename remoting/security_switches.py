"""Conf keys that ask for access control or encryption which a server does not have.

Named among keys without effect, they would leave a server open of which its owner believes that it is locked. So they
stop the start, unless the owner says that it may be open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from remoting.configuration import ConfigError, Property

ALLOW_OPEN_KEY: Final = "pyDLedgerAllowOpen"
SECURITY_SWITCHES: Final = frozenset(
    {
        "aclEnable",
        "authenticationEnabled",
        "authorizationEnabled",
        "migrateAuthFromV1Enabled",
        "tls.enable",
        "tls.server.authClient",
        "tls.server.mode",
        "tls.server.need.client.auth",
        "tlsEnable",
        "tlsMode",
        "useTLS",
    }
)
# With these a client may come without password or certificate.
_OFF_WORDS: Final = frozenset({"", "false", "disabled", "permissive", "none", "optional"})


def check_security_switches(properties: Iterable[Property], allow_open: bool, server: str) -> tuple[str, ...]:
    """Returns the pairs that ask for what `server` cannot do. Raises ConfigError for them unless `allow_open`."""
    last = {item.key: item for item in properties if item.key in SECURITY_SWITCHES}
    switched_on = [item for item in last.values() if item.value.lower() not in _OFF_WORDS]
    pairs = tuple(f"{item.key}={item.value}" for item in switched_on)
    if pairs and not allow_open:
        raise ConfigError(
            f"{switched_on[0].where}: {', '.join(pairs)} asks for what is not there yet: "
            f"this {server} would be open to all who reach it. Set {ALLOW_OPEN_KEY}=true to start it all the same"
        )
    return pairs


def open_warning(pairs: Iterable[str]) -> str:
    """What the owner of a server with such `pairs` reads where it tells how it is."""
    return f"open to all who reach it: {', '.join(pairs)} has no effect here"
