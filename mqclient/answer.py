"""What a broker or NameServer answered to one request, and how that is read. Answers come from outside: here is where
their form is doubted, so that whoever asked need not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from mqclient.errors import BadAnswerError, MQClientError
from remoting.bodies.bodies import RemotingBody
from remoting.codes import RequestCode
from remoting.errors import RemotingBodyError
from remoting.frame.command import RemotingCommand

Body = TypeVar("Body", bound=RemotingBody)


@dataclass(frozen=True, slots=True)
class Answer:
    """To `request`, from the server at `address`. What cannot be read raises what `unreadable` makes of it."""

    address: str
    request: RequestCode
    command: RemotingCommand

    @property
    def code(self) -> int:
        return self.command.code

    @property
    def remark(self) -> str:
        return self.command.remark or ""

    @property
    def fields(self) -> Mapping[str, str]:
        return self.command.ext_fields

    @property
    def body(self) -> bytes | memoryview:
        return self.command.body

    def read(self, kind: type[Body]) -> Body:
        try:
            return kind.decode(self.body)
        except RemotingBodyError as error:
            raise self.unreadable(f"a body that is no {kind.__name__}: {error}") from error

    def number(self, name: str) -> int:
        """Of the header's fields."""
        try:
            return int(self.fields[name])
        except (KeyError, ValueError):
            raise self.unreadable(f"no number {name}: {self.fields.get(name, '')!r:.80}") from None

    def unreadable(self, reason: str) -> MQClientError:
        return BadAnswerError(f"{self.address} answered {self.request.name} with {reason}")
