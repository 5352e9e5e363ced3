"""Gathers what one call to the core wants done, and holds back what presumes an unsaved term or vote."""

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
        "_cut",
        "_fatal",
        "_held",
        "_membership_wanted",
        "_messages",
        "_no_op_wanted",
        "_probe_wanted",
        "_pushed",
        "_read_completions",
        "_refused",
        "_reported_commit",
        "_reported_role",
        "_state",
        "_transfer_change",
    )

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._messages: list[Envelope] = []
        self._held: list[tuple[int, Term, Envelope]] = []
        self._completions: list[Completion] = []
        self._read_completions: list[ReadCompletion] = []
        self._pushed: PushedEntries | None = None
        self._cut: Cut | BeginAnew | None = None
        self._transfer_change: TransferChange | None = None
        self._no_op_wanted = self._probe_wanted = False
        self._membership_wanted: Membership | None = None
        self._refused: RefusedMessage | None = None
        self._fatal: str | None = None
        self._reported_commit = state.committed_index
        self._reported_role = (state.role, state.curr_term, state.leader_id)

    def send(self, to: PeerId, message: Message) -> None:
        """A message that presumes no more than the current term."""
        self._send(to, message, self._state.term_sequence)

    def send_vote(self, to: PeerId, message: Message) -> None:
        """A message that presumes the vote given in the current term as well."""
        self._send(to, message, self._state.vote_sequence)

    def _send(self, to: PeerId, message: Message, presumes: int) -> None:
        envelope = Envelope(to, message)
        if presumes <= self._state.saved_sequence:
            self._messages.append(envelope)
        else:
            self._held.append((presumes, self._state.curr_term, envelope))

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
        self._read_completions.append(ReadCompletion(closure, outcome))

    def append_pushed(self, pushed: PushedEntries) -> None:
        self._pushed = pushed

    def cut(self, cut: Cut | BeginAnew) -> None:
        self._cut = cut

    def change_transfer(self, change: TransferChange) -> None:
        self._transfer_change = change

    def want_no_op(self) -> None:
        self._no_op_wanted = True

    def want_probe(self) -> None:
        self._probe_wanted = True

    def want_membership(self, membership: Membership) -> None:
        self._membership_wanted = membership

    def refuse(self, sender: PeerId, reason: str) -> None:
        self._refused = RefusedMessage(sender, reason)

    def fail(self, reason: str) -> None:
        """What must not go on: the member is stopped from here on, whatever its caller does."""
        self._fatal = reason
        self._state.stopped = True

    def take(self) -> Output:
        """All of it, once. NOTHING when there is nothing to do."""
        state = self._state
        hard_state = state.next_hard_state()
        role_change = None
        role = (state.role, state.curr_term, state.leader_id)
        if role != self._reported_role:
            self._reported_role = role
            role_change = RoleChange(state.role, state.curr_term, state.leader_id, state.reason)
        committed_index = None
        if state.committed_index != self._reported_commit:
            committed_index = self._reported_commit = state.committed_index
        messages, completions = self._messages, self._completions
        if (
            not messages
            and not completions
            and not self._read_completions
            and committed_index is None
            and role_change is None
            and hard_state is None
            and self._pushed is None
            and self._cut is None
            and self._transfer_change is None
            and self._refused is None
            and self._fatal is None
            and not self._no_op_wanted
            and not self._probe_wanted
            and self._membership_wanted is None
        ):
            return NOTHING
        output = Output(
            hard_state=hard_state,
            cut=self._cut,
            appends=() if self._pushed is None else (self._pushed,),
            messages=tuple(messages),
            committed_index=committed_index,
            completions=tuple(completions),
            read_completions=tuple(self._read_completions),
            role_change=role_change,
            transfer_change=self._transfer_change,
            no_op_wanted=self._no_op_wanted,
            probe_wanted=self._probe_wanted,
            membership_wanted=self._membership_wanted,
            refused=self._refused,
            fatal=self._fatal,
        )
        if messages:
            self._messages = []
        if completions:
            self._completions = []
        if self._read_completions:
            self._read_completions = []
        self._pushed = self._cut = self._transfer_change = self._membership_wanted = None
        self._refused = self._fatal = None
        self._no_op_wanted = self._probe_wanted = False
        return output
