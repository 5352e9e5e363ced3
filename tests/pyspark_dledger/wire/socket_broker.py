"""A NameServer and a broker behind one socket, with one queue: answers as RocketMQ's do, and fails as told."""

from dataclasses import dataclass, field

from message.decoder import decode_messages
from message.encoder import encode_record
from pyspark_dledger.wire.queue_range import Queue
from remoting.bodies.bodies import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, response

QUEUE = Queue("T", "g0", 1)
HOST = bytes([127, 0, 0, 1, 0, 0, 0, 9])


def record(
    queue_offset: int, body: bytes, *, sys_flag: int = 0, tags: str = "", queue: Queue = QUEUE
) -> bytes:
    properties = f"TAGS\x01{tags}\x02".encode() if tags else b""
    place = (queue.queue_id, 7, queue_offset, 1000 * queue_offset)
    return encode_record(
        queue.topic.encode(),
        *place,
        sys_flag,
        1_700_000_000_000,
        HOST,
        1_700_000_000_500,
        HOST,
        0,
        0,
        body,
        properties,
    )


@dataclass
class SocketBroker:
    """`troubles`: what happens to the next pulls instead of an answer: a code to answer, or None for a closed
    connection. `lengths`: how many offsets a record stands for, where it is not one."""

    records: list[bytes]
    count_max: int = 32
    size_max: int = 1 << 20
    wanted: frozenset[str] = frozenset()  # tags; empty: all
    troubles: list[int | None] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)
    gone_before: int = 0  # offsets whose records are passed over: their data file is gone
    is_made_again: bool = False  # then a pull from before the first message begins with it
    address: str = ""
    pulls: list[int] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)  # of the last pull

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = TopicRouteData(
                queue_datas=[
                    QueueData(broker_name=QUEUE.broker, read_queue_nums=2, write_queue_nums=2, perm=6)
                ],
                broker_datas=[
                    BrokerData(cluster="c", broker_name=QUEUE.broker, broker_addrs={0: self.address})
                ],
            )
            return response(command, body=route.encode())
        assert command.code == RequestCode.PULL_MESSAGE
        if self.troubles:
            code = self.troubles.pop(0)
            return None if code is None else response(command, code, "as told")
        return self._pulled(command)

    def _pulled(self, command: RemotingCommand) -> RemotingCommand:
        self.fields = command.ext_fields
        offset, count = int(command.ext_fields["queueOffset"]), int(command.ext_fields["maxMsgNums"])
        self.pulls.append(offset)
        first = decode_messages(self.records[0], check_crc=False)[0].queue_offset
        at, records, size, looked, taken = first, [], 0, 0, 0
        for item in self.records:
            length = self.lengths.get(at, 1)
            if at + length > offset:
                # What a filter passes over does not count, nor does what is gone.
                if taken and (taken >= min(count, self.count_max) or size + len(item) > self.size_max):
                    break
                looked += length
                is_wanted = not self.wanted or decode_messages(item, check_crc=False)[0].tags in self.wanted
                if is_wanted and at >= self.gone_before:
                    records.append(item)
                    size += len(item)
                    taken += length
            at += length
        bounds = {"suggestWhichBrokerId": "0", "minOffset": str(first), "maxOffset": str(at)}
        if offset < first and not self.is_made_again:
            return response(
                command, ResponseCode.PULL_OFFSET_MOVED, "", bounds | {"nextBeginOffset": str(first)}
            )
        bounds["nextBeginOffset"] = str(at)
        if not looked:
            return response(command, ResponseCode.PULL_NOT_FOUND, "nothing", bounds)
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
        return response(command, code, "", bounds, b"".join(records))
