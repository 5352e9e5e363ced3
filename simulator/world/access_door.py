"""The broker's own check of requests, over the tables of one life of a simulated member."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from auth.authentication import AccessRefused
from auth.credentials import Credentials
from auth.policy import Action, PolicyEntry, ResourceType
from auth.user import User, UserType
from broker.access.access_check import AccessCheck
from broker.access.needs import Need
from broker.access.passed_on import PassedOn
from broker.config.access_settings import AccessConfig
from dledger.cluster_secrets import NO_CLUSTER_SECRET
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand, request
from simulator.harness.access_log import CONF_PASSWORD, CONF_USER, QUESTIONS, AccessRows, EntriesRow, Question
from store.state.tables.access_table import AccessTable

_CONFIG: Final = AccessConfig(
    authentication_enabled=True,
    authorization_enabled=True,
    init_authentication_user=User(CONF_USER, CONF_PASSWORD, UserType.SUPER),
)
_CODE: Final = RequestCode.SEND_MESSAGE_V2  # any that no white list has


class AccessDoor:
    """It remembers decisions as a broker's does, for as long as the process lives."""

    def __init__(self, table: AccessTable) -> None:
        self._table = table
        self._check = AccessCheck(_CONFIG, "", "", table, PassedOn(NO_CLUSTER_SECRET))

    @property
    def count(self) -> int:
        """Of the changes that the table has taken."""
        return self._table.data_version.counter

    def rows(self) -> AccessRows:
        users = {
            name: (user.password, str(user.user_type), str(user.user_status))
            for name, user in self._table.users.items()
        }
        policies = {
            name: (_row(both.custom), _row(both.default)) for name, both in self._table.policies.items()
        }
        return users, policies

    def admits(self, question: Question) -> bool:
        command, needs = _asked(question)
        try:
            sender = self._check.sender_of(command, f"{question.source_ip}:40000")
            self._check.check(_CODE, needs, False, sender, None, None)
        except AccessRefused:
            return False
        return True


@lru_cache(maxsize=len(QUESTIONS))
def _asked(question: Question) -> tuple[RemotingCommand, tuple[Need, ...]]:
    """A signed request, and a need that names what it is about."""
    command = request(_CODE, {"field": "value"}, opaque=1)
    credentials = Credentials(question.username, question.password)
    command.ext_fields = credentials.signed(command.ext_fields, command.body, command.version)
    actions = frozenset({Action(question.action)})
    return command, (
        Need(ResourceType(question.resource_type), actions, lambda header, body: (question.resource_name,)),
    )


def _row(entries: Mapping[str, PolicyEntry]) -> EntriesRow:
    return {
        resource: (tuple(map(str, entry.actions)), entry.source_ips, str(entry.decision))
        for resource, entry in entries.items()
    }
