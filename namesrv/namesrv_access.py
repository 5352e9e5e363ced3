"""Who may ask a NameServer. It has no log, so it knows the users of its own conf, and no policies.

Administration is closed beyond this machine. With authentication each request needs a user, and a super user where it
registers a broker or administrates.
"""

from __future__ import annotations

from typing import Final

from auth.authentication import AccessRefused, authenticate, check_administration, host_of
from auth.signature import ACCESS_KEY
from namesrv.namesrv_config import ADMIN_FROM_KEY, NamesrvConfig
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand

ADMINISTRATION: Final = frozenset(
    {
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    }
)
_OF_BROKERS: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,  # counts as a heartbeat
    }
)


class NamesrvAccess:
    def __init__(self, config: NamesrvConfig) -> None:
        self._is_enabled = config.authentication_enabled
        self._users = {user.username: user for user in config.users}
        self._admin_from = config.admin_from

    def check(self, command: RemotingCommand, remote_address: str) -> None:
        """Raises AccessRefused."""
        code = command.code
        if self._is_enabled:
            user = authenticate(self._users, command.ext_fields, command.body, command.version)
            if not user.is_super and code in ADMINISTRATION | _OF_BROKERS:
                name = command.ext_fields[ACCESS_KEY]
                raise AccessRefused(f"User:{name} is no super user, as this request needs.", "no super user")
        elif code in ADMINISTRATION:
            check_administration(
                RequestCode(code).name,
                host_of(remote_address),
                self._admin_from,
                ADMIN_FROM_KEY,
                "NameServer",
            )
