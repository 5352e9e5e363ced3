"""Gathers what one call to the core wants done, and holds back what presumes an unsaved term or vote."""

from typing import Any

from dledger.core.member_state import MemberState
from dledger.core.membership import Membership
from dledger.core.messages import Message, PeerId
from dledger.core.output import (
    NOTHING,
    AppendStatus,
    BeginAnew,
    Completion,
    Cut,
    Envelope,
    Output,
    PushedEntries,
    ReadCompletion,
    RefusedMessage,
    RoleChange,
    TransferChange,
)
from dledger.core.refusal import Refusal
from dledger.entry import Index, Term


class Outbox:
    """Invariant: no message leaves before the hard state that it presumes is saved, nor in a later term."""

    __slots__ = (
        "_completions",
        "_held",
        "_messages",
        "_others",
        "_pushed",
        "_reported_commit",
        "_reported_role",
        "_state",
    )

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._messages: list[Envelope] = []
        self._held: list[tuple[int, Term, Envelope]] = []
        self._completions: list[Completion] = []
        self._pushed: tuple[PushedEntries, ...] = ()
        self._others: dict[str, Any] = {}  # what most Outputs have not, by field
        self._reported_commit = state.committed_index
        self._reported_role = (state.role, state.curr_term, state.leader_id)

    def send(self, to: PeerId, message: Message) -> None:
        """A message that presumes no more than the current term."""
        state = self._state
        if state.term_sequence <= state.saved_sequence:
            self._messages.append(Envelope(to, message))
        else:
            self._held.append((state.term_sequence, state.curr_term, Envelope(to, message)))

    def send_vote(self, to: PeerId, message: Message) -> None:
        """A message that presumes the vote given in the current term as well."""
        state = self._state
        self._held.append((state.vote_sequence, state.curr_term, Envelope(to, message)))
        self.release_held()

    def release_held(self) -> None:
        """After a save. What was held for a term that is over says nothing true any more: it is dropped."""
        state, held = self._state, self._held
        self._held = []
        for presumes, term, envelope in held:
            if term != state.curr_term:
                continue
            if presumes <= state.saved_sequence:
                self._messages.append(envelope)
            else:
                self._held.append((presumes, term, envelope))

    def complete(self, closure: object, status: AppendStatus) -> None:
        self._completions.append(Completion(closure, status))

    def complete_read(self, closure: object, outcome: Index | Refusal) -> None:
        # A list until take(): one round may answer thousands of them.
        self._others.setdefault("read_completions", []).append(ReadCompletion(closure, outcome))

    def append_pushed(self, pushed: PushedEntries) -> None:
        self._pushed = (pushed,)

    def cut(self, cut: Cut | BeginAnew) -> None:
        self._others["cut"] = cut

    def change_transfer(self, change: TransferChange) -> None:
        self._others["transfer_change"] = change

    def want_no_op(self) -> None:
        self._others["no_op_wanted"] = True

    def want_probe(self) -> None:
        self._others["probe_wanted"] = True

    def want_membership(self, membership: Membership) -> None:
        self._others["membership_wanted"] = membership

    def refuse(self, sender: PeerId, reason: str) -> None:
        self._others["refused"] = RefusedMessage(sender, reason)

    def fail(self, reason: str) -> None:
        """What must not go on: the member is stopped from here on, whatever its caller does."""
        self._others["fatal"] = reason
        self._state.stopped = True

    def take(self) -> Output:
        """All of it, once. NOTHING when there is nothing to do."""
        state = self._state
        if (hard_state := state.next_hard_state()) is not None:
            self._others["hard_state"] = hard_state
        role = (state.role, state.curr_term, state.leader_id)
        if role != self._reported_role:
            self._reported_role = role
            self._others["role_change"] = RoleChange(*role, state.reason)
        committed_index = None
        if state.committed_index != self._reported_commit:
            committed_index = self._reported_commit = state.committed_index
        messages, completions, pushed, others = self._messages, self._completions, self._pushed, self._others
        if not (messages or completions or pushed or others or committed_index is not None):
            return NOTHING
        if "read_completions" in others:
            others["read_completions"] = tuple(others["read_completions"])
        output = Output(
            appends=pushed,
            messages=tuple(messages),
            committed_index=committed_index,
            completions=tuple(completions),
            **others,
        )
        if messages:
            self._messages = []
        if completions:
            self._completions = []
        if others:
            self._others = {}
        self._pushed = ()
        return output
