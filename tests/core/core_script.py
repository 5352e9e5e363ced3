"""Scripts over a group of members: commands, `----`, and all that they printed (after etcd-io/raft's testdata).

Commands, one per line; a block of several prints what all of them brought about:

    members n0 n1 push_size_max=1   the group and what differs from the default settings; before anything else
    members n0 n1 n2 voters=n0,n1   formed of those two
    add n0 n2                   the leader makes n2 a learner; `remove n0 n2`
    wipe n2                     it is down; another, empty disk
    seats                       who the members are, as each of them knows
    log n0 1 1 2                entries with these terms are in its log, durable
    hard n0 term=2 vote_for=n1 doubted
    start n0 [cannot_vote]      or `start all`, which connects all as well
    wire_version n2 1           n2 is of a release that speaks it, from the next connection on
    connect n0 n1               disconnect n0 n1
    tick n0 50                  50 ms later it ticks; `wait 50` only lets time pass
    deliver n0->n1 [all]        the oldest message, or all; `drop n0->n1 [all]` loses them
    save n0                     its hard state is on disk; `sync n0`: its log; `cut_done n0`: its cut
    append n0 2 name            two entries, waited for as `name`
    read n0 name                asks how far it must have applied, waited for as `name`
    transfer n0 n1              n0 hands leadership over to n1; `leave n0`: to whom it can, for it is about to stop
    crash n0 [1]                loses what is not durable but for 1 entry
    settle                      deliver, save, sync and cut until nothing is left
    forge n0->n1 HEART_BEAT 9   n1 gets a message of term 9 that n0 never sent; VOTE_END_TERM and others ending in
                                _TERM name it as the term of an entry alone
    run 500                     time passes in ticks of 10 ms, all else is immediate
    obstacle n0                 why it does not lead
    status                      logs
    quietly COMMAND             without its trace
"""

from collections.abc import Iterator

import msgspec
from core_group import CoreGroup
from memory_log import MemoryLog

from dledger.core.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerId,
    PushRequest,
    PushResponse,
    PushResult,
    PushType,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.core.output import Cut, HardState, Output
from dledger.core.refusal import Refusal
from dledger.entry import Index, Term


def run_script(text: str) -> str:
    """The script again, with what it printed this time."""
    session = Session()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        commands = lines[: lines.index("----")] if "----" in lines else lines
        printed = [line for command in commands for line in session.run(command)]
        is_story = all(command.startswith("#") for command in commands)
        blocks.append("\n".join(commands if is_story else [*commands, "----", *printed]))
    return "\n\n".join(blocks) + "\n"


class Session:
    def __init__(self) -> None:
        self._printed: list[str] = []
        self._group = CoreGroup(())

    def run(self, command: str) -> list[str]:
        self._printed = []
        words = command.split()
        if words[0] == "quietly":
            self._execute(words[1:])
            return []
        if words[0] != "#":
            self._execute(words)
        return self._printed

    def _execute(self, words: list[str]) -> None:
        group = self._group
        match words:
            case ["members", *fields]:
                ids = [field for field in fields if "=" not in field]
                settings = dict(field.split("=") for field in fields if "=" in field)
                voters = settings.pop("voters", "").split(",")
                self._group = CoreGroup(
                    ids,
                    trace=self._trace,
                    voters=[voter for voter in voters if voter],
                    **{name: int(value) for name, value in settings.items()},
                )
            case ["log", node_id, *terms]:
                group.nodes[node_id].log = MemoryLog([int(term) for term in terms])
            case ["begin", node_id, index]:
                group.nodes[node_id].log.ledger_begin_index = Index(int(index))
            case ["hard", node_id, *fields]:
                group.nodes[node_id].hard_state = _hard_state(fields)
            case ["start", "all"]:
                for node_id in group.ids:
                    group.start(node_id)
                for a in group.ids:
                    for b in group.ids:
                        if a < b:
                            group.connect(a, b)
            case ["start", node_id]:
                group.start(node_id)
            case ["start", node_id, "cannot_vote"]:
                group.start(node_id, can_vote=False)
            case ["wire_version", node_id, version]:
                group.wire_versions[node_id] = int(version)
            case ["connect", a, b]:
                group.connect(a, b)
            case ["disconnect", a, b]:
                group.disconnect(a, b)
            case ["wait", ms]:
                group.now_ms += int(ms)
            case ["tick", node_id, ms]:
                group.now_ms += int(ms)
                group.tick(node_id)
            case ["deliver", link]:
                group.deliver(*_link(link))
            case ["deliver", link, "all"]:
                for _ in range(len(group.links[_link(link)])):
                    group.deliver(*_link(link))
            case ["drop", link]:
                group.links[_link(link)].popleft()
            case ["drop", link, "all"]:
                group.links[_link(link)].clear()
            case ["save", node_id]:
                group.save(node_id)
            case ["sync", node_id]:
                group.sync(node_id)
            case ["cut_done", node_id]:
                group.finish_cut(node_id)
            case ["append", node_id, count, name]:
                bodies = [b"%s%d" % (name.encode(), number) for number in range(int(count))]
                refusal = group.nodes[node_id].up.check_append(sum(map(len, bodies)), len(bodies))
                if refusal is None:
                    group.append(node_id, bodies, name)
                else:
                    self._printed.append(f"{node_id} refuses: {refusal.reason.name}: {refusal.text}")
            case ["read", node_id, name]:
                group.read(node_id, name)
            case ["no_space", node_id, "yes" | "no" as answer]:
                member = group.nodes[node_id].up
                group.carry_out(node_id, member.write_failed_no_space(answer == "yes", group.now_ms))
            case ["stop", node_id]:
                group.carry_out(node_id, group.nodes[node_id].up.stop(group.now_ms))
            case ["transfer", node_id, target]:
                member = group.nodes[node_id].up
                refusal = member.check_transfer(target)
                if refusal is None:
                    group.carry_out(node_id, member.transfer_leadership(target, "asked for", group.now_ms))
                else:
                    self._printed.append(f"{node_id} refuses: {refusal.reason.name}: {refusal.text}")
            case ["leave", node_id]:
                group.carry_out(node_id, group.nodes[node_id].up.leave(group.now_ms))
            case ["add" | "remove" as change, leader_id, node_id]:
                member = group.nodes[leader_id].up
                wanted = (
                    member.changes.add(node_id, "") if change == "add" else member.changes.remove(node_id)
                )
                refusal = group.change_members(leader_id, wanted)
                if refusal is not None:
                    self._printed.append(f"{leader_id} refuses: {refusal.reason.name}: {refusal.text}")
            case ["wipe", node_id]:
                group.wipe(node_id)
            case ["obstacle", node_id]:
                self._printed.append(f"{node_id} {group.nodes[node_id].up.election_obstacle}")
            case ["seats"]:
                self._printed += list(self._seats())
            case ["crash", node_id]:
                group.crash(node_id)
            case ["crash", node_id, keep]:
                group.crash(node_id, keep=int(keep))
            case ["settle"]:
                group.settle()
            case ["forge", link, kind, term]:
                from_id, to = _link(link)
                member = group.nodes[to].up
                message = _forged(kind, from_id, Term(int(term)), member.curr_term)
                group.carry_out(to, member.step(message, group.now_ms))
            case ["run", ms]:
                group.run(int(ms))
            case ["status"]:
                self._printed += list(self._status())
            case ["logs"]:
                self._printed += list(self._logs())
            case _:
                raise ValueError(f"no such command: {' '.join(words)}")

    def _trace(self, node_id: PeerId, output: Output) -> None:
        self._printed += describe(node_id, output)

    def _status(self) -> Iterator[str]:
        for node_id, node in self._group.nodes.items():
            member = node.member
            if member is None:
                yield f"{node_id} down"
                continue
            log = node.log
            yield (
                f"{node_id} {member.role.name} term={member.curr_term} vote_for={member.curr_vote_for} "
                f"leader={member.leader_id} end={log.ledger_end_term}/{log.ledger_end_index} "
                f"committed={member.committed_index} durable={member.durable_index}"
                f"{' doubted' if member.doubted else ''}{' ready' if member.leader_ready else ''}"
            )

    def _seats(self) -> Iterator[str]:
        for node_id, node in self._group.nodes.items():
            if node.member is None:
                yield f"{node_id} down"
                continue
            value = node.member.membership
            voters, learners = (
                " ".join(f"{peer}/{seat.disk.decode()}" for peer, seat in sorted(seats.items()))
                for seats in (value.voters, value.learners)
            )
            behind = f", learners {learners}" if learners else ""
            yield f"{node_id} by entry {node.member.membership_index}: voters {voters}{behind}"

    def _logs(self) -> Iterator[str]:
        for node_id, node in self._group.nodes.items():
            begin, end = node.log.ledger_begin_index, node.log.ledger_end_index
            terms = [str(node.log.term_at(Index(index))) for index in range(begin, end + 1)]
            yield f"{node_id} {begin}: {' '.join(terms)}"


def _forged(kind: str, from_id: PeerId, term: Term, known: Term) -> Message:
    push = PushRequest(PushType.COMPARE, term, from_id, Index(0), Term(1), 0, Index(0), 1)
    answer = PushResponse(
        PushType.COMPARE, term, from_id, 1, PushResult.INCONSISTENT_STATE, Index(0), Index(0), Index(0)
    )
    messages: dict[str, Message] = {
        "PRE_VOTE": VoteRequest(term, from_id, Term(1), Index(9), pre_vote=True),
        "VOTE": VoteRequest(term, from_id, Term(1), Index(9), pre_vote=False),
        "HANDED_OVER_VOTE": VoteRequest(term, from_id, Term(1), Index(9), False, leadership_transfer=True),
        "VOTE_END_TERM": VoteRequest(known, from_id, term, Index(9), pre_vote=False),
        "VOTE_RESPONSE": VoteResponse(
            term, known, from_id, False, VoteResult.ACCEPT, Term(1), Index(9), False
        ),
        "HEART_BEAT": HeartBeatRequest(term, from_id, Index(0), 1),
        "HEART_BEAT_RESPONSE": HeartBeatResponse(term, from_id, 1, Index(0)),
        "PUSH": push,
        "PUSH_PREVIOUS_TERM": msgspec.structs.replace(push, term=known, previous_term=term),
        "PUSH_NEXT_TERM": msgspec.structs.replace(push, term=known, next_term=term),
        "PUSH_RESPONSE": answer,
        "PUSH_CONFLICT_TERM": msgspec.structs.replace(answer, term=known, conflict_term=term),
        "TIMEOUT_NOW": TimeoutNow(term, from_id, Index(0)),
        "READ_INDEX": ReadIndexRequest(term, from_id, 1),
        "READ_INDEX_RESPONSE": ReadIndexResponse(term, from_id, 1),
    }
    return messages[kind]


def describe(node_id: PeerId, output: Output) -> list[str]:
    """An Output field by field, top to bottom."""
    lines = []
    if (state := output.hard_state) is not None:
        doubted = " doubted" if state.doubted else ""
        lines.append(f"{node_id} persist term={state.curr_term} vote_for={state.curr_vote_for}{doubted}")
    if isinstance(output.cut, Cut):
        lines.append(f"{node_id} cut from={output.cut.from_index}")
    elif output.cut is not None:
        lines.append(
            f"{node_id} begins behind={output.cut.before_begin_term}/{output.cut.before_begin_index}"
        )
    lines += [
        f"{node_id} append {pushed.payload.first_index + pushed.skip}..{pushed.payload.last_index}"
        for pushed in output.appends
    ]
    lines += [f"{node_id}->{envelope.to} {_message(envelope.message)}" for envelope in output.messages]
    if output.committed_index is not None:
        lines.append(f"{node_id} commit {output.committed_index}")
    lines += [f"{node_id} complete {item.closure} {item.status.name}" for item in output.completions]
    for read in output.read_completions:
        shown = (
            f"{read.outcome.reason.name}: {read.outcome.text}"
            if isinstance(read.outcome, Refusal)
            else read.outcome
        )
        lines.append(f"{node_id} read {read.closure} {shown}")
    if (change := output.role_change) is not None:
        lines.append(
            f"{node_id} role {change.role.name} term={change.term} leader={change.leader_id}: {change.reason}"
        )
    if (transfer := output.transfer_change) is not None:
        lines.append(f"{node_id} transfer to={transfer.target}: {transfer.reason}")
    if output.no_op_wanted:
        lines.append(f"{node_id} wants a no-op")
    if (wanted := output.membership_wanted) is not None:
        lines.append(f"{node_id} wants voters {sorted(wanted.voters)}, learners {sorted(wanted.learners)}")
    if output.refused is not None:
        lines.append(f"{node_id} refuses {output.refused.reason}")
    if output.fatal is not None:
        lines.append(f"{node_id} FATAL {output.fatal}")
    return lines


def _message(message: Message) -> str:
    match message:
        case VoteRequest():
            end = f"{message.ledger_end_term}/{message.ledger_end_index}"
            kind = "PRE_VOTE" if message.pre_vote else "VOTE"
            transfer = " transfer" if message.leadership_transfer else ""
            return f"{kind} term={message.term} end={end}{transfer}"
        case VoteResponse():
            kind = "PRE_VOTE_RESPONSE" if message.pre_vote else "VOTE_RESPONSE"
            doubted = " doubted" if message.doubted else ""
            end = f"{message.ledger_end_term}/{message.ledger_end_index}"
            return f"{kind} of={message.request_term} term={message.term} {message.vote_result.name} end={end}{doubted}"
        case HeartBeatRequest():
            return f"HEART_BEAT term={message.term} committed={message.committed_index} round={message.round}"
        case HeartBeatResponse():
            return f"HEART_BEAT_RESPONSE term={message.term} round={message.round}"
        case TimeoutNow():
            return f"TIMEOUT_NOW term={message.term} end={message.ledger_end_index}"
        case ReadIndexRequest():
            return f"READ_INDEX term={message.term}"
        case ReadIndexResponse():
            return (
                f"READ_INDEX_RESPONSE term={message.term} {message.refusal.name}"
                if message.refusal is not None
                else f"READ_INDEX_RESPONSE term={message.term} index={message.read_index}"
            )
        case PushRequest():
            entries = message.payload or message.entries
            what = f" entries={entries.first_index}..{entries.last_index}" if entries else ""
            following = "" if message.next_term is None else f" next={message.next_term}"
            return (
                f"{message.push_type.name} term={message.term} seq={message.sequence} "
                f"previous={message.previous_term}/{message.previous_index}{following}{what} "
                f"committed={message.committed_index}"
            )
        case PushResponse():
            conflict = (
                ""
                if message.conflict_index < 0
                else f" conflict={message.conflict_term} from {message.conflict_index}"
            )
            return (
                f"{message.push_type.name}_RESPONSE term={message.term} seq={message.sequence} "
                f"{message.push_result.name} durable={message.durable_index} end={message.ledger_end_index}{conflict}"
            )


def _link(text: str) -> tuple[PeerId, PeerId]:
    sender, to = text.split("->")
    return sender, to


def _hard_state(fields: list[str]) -> HardState:
    values = dict(field.split("=") for field in fields if "=" in field)
    return HardState(1, Term(int(values["term"])), values.get("vote_for"), "doubted" in fields)
