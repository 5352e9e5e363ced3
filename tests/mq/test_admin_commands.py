"""Each command of `mq admin` against a broker and a NameServer in this process: what a user types, and sees."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_cases import BY_THEMSELVES, REFUSED, SHOWN
from admin_cluster import BROKER, FOLLOWER, NAMESRV, AdminCluster, asked_cluster, in_one_line, run

from dledger.entry import Index
from dledger.log.faulty_ranges import FaultyRange
from message.decoder import decode_message
from message.names import TRANS_CHECK_MAX_TIME_TOPIC
from message.properties import encode_properties
from mq.admin.__main__ import COMMANDS, NOT_HERE, main
from mq.admin.command import Command
from mq.admin.targets import seen_at_each
from mqclient import Admin, AdminError
from remoting.bodies.topic_bodies import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from store.put_message import PutMessage


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    with asked_cluster(tmp_path, monkeypatch) as made:
        yield made


def test_every_command_is_tested() -> None:
    assert {arguments[0] for arguments in SHOWN} | BY_THEMSELVES == COMMANDS.keys()


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
def test_a_command_shows_what_is_there_or_what_it_did(
    cluster: AdminCluster, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(*arguments)
    shown = capsys.readouterr()
    assert in_one_line(SHOWN[arguments]) in in_one_line(shown.out)
    assert shown.err == ""


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
def test_json_is_all_that_a_program_gets(
    cluster: AdminCluster, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(*arguments, "--json")
    assert isinstance(json.loads(capsys.readouterr().out), list | dict)


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_mistake_is_one_line_that_says_what_to_do(
    cluster: AdminCluster, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert REFUSED[arguments] in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.count("127.0.0.1") <= 1, "an address is named once"


def test_tables_are_aligned_and_can_be_cut_and_pasted(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run("topicRoute", "-t", "T")
    assert capsys.readouterr().out == (
        "BROKER    CLUSTER        LEADER           READ QUEUES  WRITE QUEUES  PERM\n"
        "golden-a  GoldenCluster  127.0.0.1:17911            2             2     6\n"
    )
    run("queryCq", "-t", "T", "-q", "1", "-i", "0")
    assert capsys.readouterr().out == (
        "OFFSET  PHY OFFSET  SIZE  TAGS CODE\n     0        1258   225         65\n"
        "\nthe queue has offsets 0 to below 1\n"
    )
    run("updateTopic", "-t", "T", "-r", "4", "-w", "4")
    assert capsys.readouterr().out == "127.0.0.1:17911: topic T: 4 read queues, 4 write queues, perm 6\n"


def test_a_message_that_was_given_up_is_prepared_again(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = encode_properties({"PGROUP": "p", "REAL_TOPIC": "T", "REAL_QID": "0"})
    topic = TRANS_CHECK_MAX_TIME_TOPIC.encode()
    broker = cluster.broker
    assert broker.put(PutMessage(topic, 0, b"m", properties, 0, broker.now_ms, bytes(8))) is None
    broker.run_until(lambda: broker.store.reads.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) == 1)
    (record,) = broker.store.reads.get_message(TRANS_CHECK_MAX_TIME_TOPIC, 0, 0, 1, 1000).buffers
    capsys.readouterr()
    run("resumeCheckHalfMessage", "-i", decode_message(record).msg_id)
    assert "is prepared again" in capsys.readouterr().out
    broker.run_for(3000)
    run("transactionStatus")
    table, _, total = capsys.readouterr().out.rstrip().rpartition("\n")
    assert total == "total 1"
    assert in_one_line("ADDRESS TOPIC UNDECIDED") in in_one_line(table)


def test_who_leads_after_a_transfer_is_shown(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the leader of a larger group answers."""

    def alter(code: int, answer: RemotingCommand) -> None:
        if code == RequestCode.LEADERSHIP_TRANSFER:
            answer.code, answer.remark, answer.body = 0, None, b'{"leaderId":"n1","term":7}'

    cluster.alter = alter
    capsys.readouterr()
    run("transferLeader", "-c", "GoldenCluster", "-t", "n1")
    assert in_one_line(f"FROM ADDRESS LEADER TERM {BROKER} n1 7") in in_one_line(capsys.readouterr().out)
    run("transferLeader", "-b", BROKER, "--json")
    assert json.loads(capsys.readouterr().out) == [{"from_address": BROKER, "leader": "n1", "term": 7}]


def test_what_is_damaged_is_told_range_by_range(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = cluster.broker
    log = broker.replica.log
    damaged = FaultyRange(Index(1), Index(2), log.pos_at(Index(1)), log.end_pos_at(Index(2)))
    log.note_damage(damaged)
    broker.run_until(lambda: broker.replica.repairer.waits)
    capsys.readouterr()
    run("repairStatus", "-b", BROKER)
    table, _, line = capsys.readouterr().out.rstrip().rpartition("\n")
    columns = "ADDRESS ENTRIES BYTES FILES SINCE STAGE REPAIRED BYTES AGAIN"
    row = f"{BROKER} 1..2 {damaged.pos}..{damaged.next_pos - 1} 00000000000000000000 "
    assert in_one_line(table).startswith(f"{columns} {row}")
    assert in_one_line(" waiting 0 ") in in_one_line(table)
    assert line.startswith(f"{BROKER}: 1 damaged range; since its start 0 repaired (0 bytes), ")
    run("repairStatus", "-b", BROKER, "--json")
    [member] = json.loads(capsys.readouterr().out)
    [told] = member["ranges"]
    assert (told["first_index"], told["last_index"], told["stage"]) == (1, 2, "waiting")
    assert (told["first_byte"], told["last_byte"]) == (damaged.pos, damaged.next_pos - 1)
    assert member["scrub"]["address"] == BROKER


def test_a_change_that_ends_half_way_says_where_it_was_made(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.register_follower()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run("deleteExpiredCommitLog")
    assert capsys.readouterr().err == f"mq: {FOLLOWER}: Connection refused (done already at {BROKER})\n"


def test_a_change_that_ends_half_way_is_not_surely_undone(cluster: AdminCluster) -> None:
    cluster.refuse[RequestCode.DELETE_TOPIC_IN_BROKER] = (ResponseCode.SYSTEM_BUSY, "busy")

    async def work() -> None:
        async with Admin(NAMESRV, connect=cluster.connect) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.groups.delete_in_cluster("g", "GoldenCluster")
        assert (caught.value.definite, caught.value.code) == (False, ResponseCode.SYSTEM_BUSY)
        assert str(caught.value).endswith(f"(done already at {BROKER})")

    asyncio.run(work())


def test_a_group_is_cloned_where_it_has_an_offset_and_nowhere_else(cluster: AdminCluster) -> None:
    def commit(group: str, queue_id: str, offset: str) -> None:
        fields = {"consumerGroup": group, "topic": "T", "queueId": queue_id, "commitOffset": offset}
        cluster.broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    commit("source", "0", "1")
    commit("g", "0", "2")
    commit("g", "1", "1")

    async def work() -> None:
        async with Admin(NAMESRV, connect=cluster.connect) as admin:
            (cloned,) = await admin.groups.clone_offsets("source", "g", "T")
            assert (cloned.queue, cloned.offset) == (0, 1)
            assert [row.consumer_offset for row in await admin.groups.progress("g", "T")] == [1, 1]

    asyncio.run(work())


def test_a_member_that_does_not_answer_is_listed_all_the_same(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.register_follower()
    capsys.readouterr()
    run("clusterList", "--json")
    leader, follower = json.loads(capsys.readouterr().out)
    assert (leader["id"], leader["active"], follower["id"], follower["active"]) == (0, True, 2, False)
    assert (follower["address"], follower["version"]) == (FOLLOWER, None)


LOOKS = ("brokerStatus", "haStatus", "getBrokerConfig", "scrubStatus", "repairStatus")


@pytest.mark.parametrize("is_hanging_up", [False, True])
@pytest.mark.parametrize("name", LOOKS)
def test_members_that_answer_are_shown_and_the_others_are_named(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], name: str, is_hanging_up: bool
) -> None:
    cluster.register_follower()
    cluster.hanging_up |= {FOLLOWER} if is_hanging_up else set()
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(name, "-c", "GoldenCluster")
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert BROKER in shown.out
    assert FOLLOWER not in shown.out
    assert shown.err.startswith(f"mq: {FOLLOWER}: ")
    assert shown.err.endswith(": start it if it is down; if it is up, its log says why it hangs\n")
    assert "unknown" not in shown.err, "of a look there is no outcome"
    with pytest.raises(SystemExit) as ended:
        run(name, "-c", "GoldenCluster", "--json")
    assert ended.value.code == 1
    told = json.loads(capsys.readouterr().out)
    by_address = told if isinstance(told, dict) else {member["address"]: member for member in told}
    assert by_address.keys() == {BROKER, FOLLOWER}
    assert "error" not in by_address[BROKER]
    assert by_address[FOLLOWER]["error"] == shown.err.removeprefix("mq: ").rstrip()


def test_members_are_looked_at_at_the_same_time(cluster: AdminCluster) -> None:
    cluster.register_follower()

    async def work() -> None:
        all_asked = asyncio.Barrier(2)

        async def look(address: str) -> str:
            await all_asked.wait()
            return address

        async with Admin(NAMESRV, connect=cluster.connect) as admin, asyncio.timeout(60):
            seen, silent = await seen_at_each(admin, "", "GoldenCluster", look)
        assert (list(seen), silent) == ([BROKER, FOLLOWER], {})

    asyncio.run(work())


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, None])
def test_only_a_change_can_end_unknown(cluster: AdminCluster, code: int | None) -> None:
    if code is None:
        cluster.hanging_up |= {BROKER}
    else:
        cluster.refuse |= dict.fromkeys(
            (RequestCode.SCRUB, RequestCode.CLEAN_UNUSED_TOPIC), (code, "for a reason")
        )

    async def work() -> None:
        async with Admin(NAMESRV, connect=cluster.connect) as admin:
            brokers = admin.brokers
            for ask, is_change in (
                (brokers.scrub_status, False),
                (brokers.scrub, True),
                (brokers.clean_unused_topic, True),
            ):
                with pytest.raises(AdminError) as caught:
                    await ask(BROKER)
                assert caught.value.definite is not is_change
                assert ("unknown" in str(caught.value)) is (is_change and code is None)

    asyncio.run(work())


def test_who_is_refused_until_members_are_up_is_not_told_to_wait(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "without n1 1 of 2 voters would be live and level, 2 are needed: n2 is silent; bring these up"
    cluster.refuse[RequestCode.REMOVE_MEMBER] = (ResponseCode.ILLEGAL_OPERATION, reason)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run("removeMember", "-i", "n1", "-b", BROKER)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"mq: {BROKER}: {reason}\n"


def test_a_name_server_that_is_down_is_named_once(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.is_namesrv_down = True
    with pytest.raises(SystemExit):
        run("topicList")
    told = f"no NameServer answered ({NAMESRV}: Connection refused): start it, or name another with -n"
    assert capsys.readouterr().err == f"mq: {told}\n"


def test_who_is_no_leader_is_told_where_to_ask(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.broker.step_down()
    with pytest.raises(SystemExit):
        run("updateTopic", "-t", "T", "-b", BROKER)
    assert "ask the leader (id 0 of clusterList)" in capsys.readouterr().err


def test_a_group_without_a_leader_takes_no_change(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.broker.step_down()
    cluster.unregister_leader()
    with pytest.raises(SystemExit):
        run("updateTopic", "-t", "T")
    assert "broker golden-a has no leader now: try again in a moment" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nope",),
        ("topicStatus",),
        ("updateTopic", "-t", "T", "-r", "many"),
        ("queryCq", "-t", "T", "-q", "-1"),
    ],
)
def test_wrong_options_end_with_another_status(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", NAMESRV)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == (2 if arguments else 0)


def test_lists_of_topics_and_groups_are_made_as_a_whole(
    cluster: AdminCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text('[{"topicName": "One", "readQueueNums": 2, "writeQueueNums": 2}, {"topicName": "Two"}]')
    groups.write_text('[{"groupName": "one", "retryMaxTimes": 3}]')
    capsys.readouterr()
    run("updateTopicList", "-f", str(topics))
    run("updateSubGroupList", "-f", str(groups))
    assert capsys.readouterr().out == f"{BROKER}: topic One\n{BROKER}: topic Two\n{BROKER}: group one\n"
    run("exportMetadata", "-f", str(tmp_path / "out"))
    exported = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert exported["topicConfigTable"].keys() == {"T", "One", "Two"}
    assert exported["subscriptionGroupTable"]["one"]["retryMaxTimes"] == 3
    topics.write_text('[{"topicName": "Three"}, {"topicName": "bad name"}]')
    with pytest.raises(SystemExit):
        run("updateTopicList", "-f", str(topics))
    assert "bad name" in capsys.readouterr().err
    run("topicList", "--json")
    assert {"topic": "Three"} not in json.loads(capsys.readouterr().out)


def test_an_unknown_outcome_is_no_refusal(cluster: AdminCluster) -> None:
    async def ends(code: int) -> tuple[bool, bool]:
        cluster.refuse[RequestCode.UPDATE_AND_CREATE_TOPIC] = (code, "for a reason")
        async with Admin(NAMESRV) as admin:
            with pytest.raises(AdminError, match="for a reason") as caught:
                await admin.topics.put(BROKER, TopicConfig(topic_name="T"))
        return caught.value.definite, caught.value.retriable

    assert asyncio.run(ends(ResponseCode.SYSTEM_ERROR)) == (False, False)
    assert asyncio.run(ends(ResponseCode.SERVICE_NOT_AVAILABLE)) == (True, True)
    assert asyncio.run(ends(ResponseCode.INVALID_PARAMETER)) == (True, False)


def test_an_interrupt_ends_a_command_without_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Command, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        run("topicList")
    assert ended.value.code == 130


def test_every_command_of_the_page_is_here_or_its_absence_has_a_reason() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "mqadmin.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row)} == {*COMMANDS, *NOT_HERE}
    assert COMMANDS.keys().isdisjoint(NOT_HERE)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("copyuser", "copyUser is not here: no broker tells passwords"),
        ("electmaster", "electMaster is not here: a group elects its leader itself"),
        ("topiclist", "there is no command topiclist: did you mean topicList?"),
        ("brokerStats", "did you mean brokerStatus?"),
        ("xyz", "there is no command xyz: mq admin --help lists all"),
    ],
)
def test_a_name_that_is_no_command_is_told_why(
    name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([name, "-n", NAMESRV])
    assert reason in capsys.readouterr().err


def test_an_option_that_a_command_does_not_have_shows_those_that_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["topicStatus", "-t", "T", "-i", "1", "-n", NAMESRV])
    told = capsys.readouterr().err
    assert "usage: mq admin topicStatus [-h] -t TOPIC" in told
    assert "unrecognized arguments: -i 1" in told


@pytest.mark.parametrize("name", ["topicList", "clusterList", "brokerStatus", "scrub", "consumerProgress"])
def test_without_a_broker_a_list_is_no_empty_success(
    cluster: AdminCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.unregister()
    with pytest.raises(SystemExit) as ended:
        run(name)
    assert ended.value.code == 1
    assert "no broker is registered with the NameServer: start one" in capsys.readouterr().err
