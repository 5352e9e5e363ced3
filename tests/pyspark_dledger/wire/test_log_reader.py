"""A worker reads a range of a group's log from a broker: each entry once, proved, or an error that says why not."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from answering import answering
from one_broker import OneBroker, send_fields

from dledger.entry import parse_header
from pyspark_dledger.wire import log_reader, patience
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.entry_options import LogOptions
from pyspark_dledger.wire.log_reader import LogReader, LogTask, member_addresses
from pyspark_dledger.wire.proof import Proof
from pyspark_dledger.wire.read_errors import (
    DataLossError,
    LogRewrittenError,
    PullRefusedError,
    ReadTimeoutError,
)
from remoting.bodies.bodies import BrokerData, ClusterInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, response

Change = Callable[[RemotingCommand], RemotingCommand | None]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE_S", 0.001)


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    made = OneBroker(tmp_path)
    for number in range(40):
        answer = made.ask(RequestCode.SEND_MESSAGE_V2, send_fields("TBW102"), b"body %d" % number)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    made.run_for(1000)
    return made


@contextmanager
def group_of(
    broker: OneBroker, change: Change = lambda answer: answer, followers: int = 0
) -> Iterator[LogOptions]:
    """NameServer and members behind one socket. `change`: what becomes of answers with entries."""

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            members = dict.fromkeys(range(followers + 1), address)
            data = BrokerData(cluster="c", broker_name="g0", broker_addrs=members)
            return response(command, body=ClusterInfo(broker_addr_table={"g0": data}).encode())
        told = broker.ask(command.code, command.ext_fields)
        return change(response(command, told.code, told.remark, told.ext_fields, bytes(told.body)))

    with answering(answer) as address:
        yield LogOptions(cluster=ClusterAccess((address,)), timeout_ms=10_000, followers_first=False)


def proof_at(broker: OneBroker, index: int) -> Proof:
    told = broker.ask(RequestCode.GET_ENTRIES, {"beginIndex": str(index), "maxBytes": "0"})
    header = parse_header(bytes(told.body))
    return Proof(told.ext_fields["groupUuid"], index, header.term, header.chain_crc)


def task(broker: OneBroker, start: int, end: int) -> LogTask:
    last = proof_at(broker, end - 1)
    before = proof_at(broker, start - 1) if start else Proof(last.group_uuid, -1, -1, 0)
    return LogTask(LogRange("g0", start, end), last.group_uuid, before, last)


def indexes(options: LogOptions, wanted: LogTask) -> list[int]:
    with closing(LogReader(options, wanted)) as reader:
        return [index for run in reader.runs() for index in range(run.first_index, run.last_index + 1)]


@pytest.mark.parametrize("bytes_max", [0, 1000, 1 << 20])
def test_range_has_each_entry_once_whatever_an_answer_brings(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(log_reader, "_BYTES_MAX", bytes_max)
    with group_of(broker) as options:
        assert indexes(options, task(broker, 0, 35)) == list(range(35))
        assert indexes(options, task(broker, 7, 8)) == [7]


def test_part_in_the_middle_needs_no_proof_of_its_ends(broker: OneBroker) -> None:
    with group_of(broker) as options:
        assert indexes(options, replace(task(broker, 5, 30), before=None, last=None)) == list(range(5, 30))


def test_trouble_of_a_moment_costs_no_entry(broker: OneBroker) -> None:
    troubles: list[int | None] = [None, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY]

    def change(answer: RemotingCommand) -> RemotingCommand | None:
        if troubles:
            code = troubles.pop()
            return None if code is None else response(answer, code, "as told")
        return answer

    with group_of(broker, change) as options:
        assert indexes(options, task(broker, 0, 20)) == list(range(20))


def test_damaged_answer_is_asked_for_again(broker: OneBroker) -> None:
    damaged = [True]

    def change(answer: RemotingCommand) -> RemotingCommand:
        if damaged.pop() if damaged else False:
            answer.body = bytes(answer.body).replace(b"body 3", b"bodY 3")
        return answer

    with group_of(broker, change) as options:
        assert indexes(options, task(broker, 0, 20)) == list(range(20))


@pytest.mark.parametrize("which", ["before", "last"])
def test_log_that_was_rewritten_ends_the_read(broker: OneBroker, which: str) -> None:
    wanted = task(broker, 5, 20)
    proof = wanted.before if which == "before" else wanted.last
    assert proof is not None
    wanted = replace(wanted, **{which: replace(proof, chain=proof.chain ^ 1)})
    with group_of(broker) as options, pytest.raises(LogRewrittenError, match="chain"):
        indexes(options, wanted)


def test_log_of_another_group_ends_the_read(broker: OneBroker) -> None:
    with group_of(broker) as options, pytest.raises(LogRewrittenError, match="has read group aaaa"):
        indexes(options, replace(task(broker, 5, 20), group_uuid="a" * 64))


def test_expired_entries_are_named(broker: OneBroker) -> None:
    def change(answer: RemotingCommand) -> RemotingCommand:
        fields = answer.ext_fields | {"ledgerBeginIndex": "9", "lastIndex": "4"}
        return response(answer, 0, "", fields)

    with group_of(broker, change) as options, pytest.raises(DataLossError) as raised:
        indexes(options, task(broker, 5, 20))
    assert str(raised.value).startswith(
        "expired: the log of g0 has lost 4 entries, 5 to 8: the log begins at 9 now"
    )


def test_member_that_is_behind_is_waited_for(broker: OneBroker) -> None:
    end = broker.store.replica.member.committed_index + 5
    with group_of(broker) as options, pytest.raises(ReadTimeoutError, match="knows no commit above"):
        indexes(
            replace(options, timeout_ms=50),
            replace(task(broker, 5, 20), part=LogRange("g0", 5, end), last=None),
        )


def test_refusal_is_told_in_the_words_of_the_broker(broker: OneBroker) -> None:
    def change(answer: RemotingCommand) -> RemotingCommand:
        return response(answer, ResponseCode.NO_PERMISSION, "not yours")

    with (
        group_of(broker, change) as options,
        pytest.raises(PullRefusedError, match=r"the log of g0: .* 16 not yours"),
    ):
        indexes(options, task(broker, 5, 20))


@pytest.mark.parametrize(
    ("followers_first", "order"), [(False, ["a:1", "c:1", "b:1"]), (True, ["b:1", "c:1", "a:1"])]
)
def test_members_are_asked_in_the_order_that_is_wished(followers_first: bool, order: list[str]) -> None:
    """The leader has two ids."""
    members = {0: "a:1", 1: "c:1", 2: "a:1", 3: "b:1"}

    def answer(command: RemotingCommand) -> RemotingCommand:
        data = BrokerData(cluster="c", broker_name="g0", broker_addrs=members)
        return response(command, body=ClusterInfo(broker_addr_table={"g0": data}).encode())

    with answering(answer) as address:
        options = LogOptions(
            cluster=ClusterAccess(("127.0.0.1:1", address)), timeout_ms=1, followers_first=followers_first
        )
        assert member_addresses(options, "g0") == order
