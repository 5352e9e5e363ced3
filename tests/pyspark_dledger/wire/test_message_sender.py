"""A worker sends messages over sockets: each is stored, through what may go wrong on the way, and again if in doubt."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from answering import answering

from message.tags import java_hash
from pyspark_dledger.wire import message_sender, patience
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.message_sender import MessageSender, SendOptions, SinkMessage
from pyspark_dledger.wire.read_errors import ReadTimeoutError, SendRefusedError
from remoting.bodies.bodies import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, response

STORED = (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE_S", 0.001)


class SendCluster:
    """A NameServer and two leaders. `codes`: of the next answers to sends; None closes the connection instead, after it
    has stored the message."""

    def __init__(self, codes: list[int | None] | None = None) -> None:
        self.codes = codes or []
        self.leaders = {"g0": "", "g1": ""}
        self.away: set[str] = set()  # brokers without a leader, for one look
        self.stored: list[tuple[str, int, bytes]] = []  # broker, queue, body
        self.namesrv = ""

    def route(self, command: RemotingCommand) -> RemotingCommand:
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
                for name in self.leaders
            ],
            broker_datas=[
                BrokerData(
                    cluster="c", broker_name=name, broker_addrs={} if name in self.away else {0: address}
                )
                for name, address in self.leaders.items()
            ],
        )
        self.away.clear()
        return response(command, body=route.encode())

    def send(self, command: RemotingCommand) -> RemotingCommand | None:
        assert command.code == RequestCode.SEND_MESSAGE_V2
        code = self.codes.pop(0) if self.codes else ResponseCode.SUCCESS
        if code is None or code in STORED:
            fields = command.ext_fields
            self.stored.append((fields["n"], int(fields["e"]), bytes(command.body)))
        return None if code is None else response(command, code, "as told")


@contextmanager
def running(cluster: SendCluster) -> Iterator[SendOptions]:
    with ExitStack() as servers:
        cluster.namesrv = servers.enter_context(answering(cluster.route))
        for name in cluster.leaders:
            cluster.leaders[name] = servers.enter_context(answering(cluster.send))
        yield SendOptions(ClusterAccess(("127.0.0.1:1", cluster.namesrv)), "p", timeout_ms=10_000)


def some(count: int, sharding_key: str = "") -> list[SinkMessage]:
    return [SinkMessage("T", sharding_key, "UNIQ_KEY\x01k\x02", b"%d" % number) for number in range(count)]


def sent(cluster: SendCluster, messages: list[SinkMessage], timeout_ms: int = 10_000) -> int:
    with running(cluster) as options, closing(MessageSender(options)) as sender:
        sender._options = SendOptions(options.cluster, "p", timeout_ms)
        return sender.send(iter(messages))


def test_each_message_is_stored_once_and_all_queues_have_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_sender, "_AT_ONCE", 30)
    cluster = SendCluster()
    assert sent(cluster, some(100)) == 100
    assert sorted(body for _, _, body in cluster.stored) == sorted(message.body for message in some(100))
    assert Counter(place[:2] for place in cluster.stored) == dict.fromkeys(
        [("g0", 0), ("g0", 1), ("g1", 0), ("g1", 1)], 25
    )


def test_messages_with_one_key_go_to_one_queue_in_their_order_and_wait_for_its_leader() -> None:
    cluster = SendCluster()
    cluster.away = {"g0", "g1"}
    sent(cluster, some(20, "account-7"))
    number = abs(java_hash("account-7")) % 4
    assert cluster.stored == [("g0" if number < 2 else "g1", number % 2, b"%d" % at) for at in range(20)]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
        ResponseCode.TOPIC_NOT_EXIST,
    ],
)
def test_what_is_refused_for_a_moment_is_sent_again(code: int) -> None:
    cluster = SendCluster([ResponseCode.SUCCESS, code, ResponseCode.FLUSH_SLAVE_TIMEOUT, code])
    assert sent(cluster, some(10)) == 10
    assert sorted(body for _, _, body in cluster.stored) == sorted(message.body for message in some(10))


def test_what_ends_unknown_is_sent_again() -> None:
    """It may be there twice, and is there at least once."""
    cluster = SendCluster([ResponseCode.SUCCESS, None, ResponseCode.SUCCESS, None])
    assert sent(cluster, some(10)) == 10
    assert {body for _, _, body in cluster.stored} == {message.body for message in some(10)}


def test_refusal_ends_the_task_in_the_words_of_the_broker() -> None:
    with pytest.raises(SendRefusedError, match=r"topic T: \S+ answers 13 as told"):
        sent(SendCluster([ResponseCode.MESSAGE_ILLEGAL]), some(1))


def test_task_ends_when_a_trouble_stays() -> None:
    with pytest.raises(
        ReadTimeoutError, match=r"topic T: no acknowledgement for 0.05 s: \S+ answers 14 as told"
    ):
        sent(SendCluster([ResponseCode.SERVICE_NOT_AVAILABLE] * 1000), some(2), timeout_ms=50)


def test_nothing_is_sent_of_nothing() -> None:
    assert sent(SendCluster(), []) == 0
