"""Messages born at and stored on IPv6 addresses, as RocketMQ 5 stores them: hosts of 20 bytes, two bits in sysFlag."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import uvloop
from one_broker import OneBroker, RecordingChannel, send_fields
from test_broker_server import running
from test_retries import messages_of, send_back
from test_send_message import stored

from broker.config.config_file import read_broker_config
from message.decoder import MessageExt, decode_message
from message.message_id import decode_offset_message_id
from mqclient import Admin, ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from pyspark_dledger.entry_columns import Selection
from pyspark_dledger.entry_rows import unit_batches
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import parse_properties
from tests.free_ports import free_ports
from verify.replica import open_replica
from verify.runner import LocalRunner
from verify.validation import validate
from verify.work import plan

V6 = "[2001:db8:0:0:0:0:0:1]:17911"
CONF = "brokerIP1=2001:db8::1\n"
GROUP_OF_ONE = """
enableDLegerCommitLog=true
dLegerGroup=G
dLegerPeers=n0-[::1]:{raft_port}
dLegerSelfId=n0
"""


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def ask(broker: OneBroker, channel: RecordingChannel, properties: str, body: bytes) -> MessageExt:
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, properties), body, channel)
    assert answer.code == ResponseCode.SUCCESS
    msg_id = answer.ext_fields["msgId"]
    assert len(msg_id) == 56
    assert decode_offset_message_id(msg_id)[0] == V6
    message = decode_message(stored(broker, answer))
    assert message.msg_id == msg_id
    return message


def rows_of(root: Path) -> list[tuple[object, ...]]:
    """Of the table of entries: the first message of T."""
    columns = ("msg_id", "born_host", "store_host", "sys_flag")
    rows = [
        row
        for unit in plan([open_replica(root)], unit_count=1)
        for batch in unit_batches(unit, Selection(("topic", *columns)))
        for row in batch.to_pylist()
    ]
    return [tuple(row[name] for name in columns) for row in rows if row["topic"] == "T"][:1]


@pytest.mark.parametrize(
    ("client", "born", "flags"),
    [
        ("[::1]:50001", "[0:0:0:0:0:0:0:1]:50001", 0x30),
        ("10.0.0.1:50001", "10.0.0.1:50001", 0x20),
    ],
)
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_message_keeps_its_hosts_on_every_way(
    tmp_path: Path, client: str, born: str, flags: int, is_plain: bool
) -> None:
    """Sent, delayed, given back, and found again after a restart; and the validator calls all of it sound."""
    broker = OneBroker(tmp_path, CONF, is_plain=is_plain)
    channel = RecordingChannel(2, client)
    sent = ask(broker, channel, "TAGS\x01A\x02KEYS\x01k\x02", b"at once")
    ask(broker, channel, "TAGS\x01A\x02DELAY\x011\x02", b"later")
    broker.run_for(1500)
    assert send_back(broker, sent.phy_offset, delayLevel="1").code == ResponseCode.SUCCESS
    broker.run_for(1500)
    broker.close(clean=True)

    broker = OneBroker(tmp_path, CONF, is_plain=is_plain)
    arrived = [*messages_of(broker, "T"), *messages_of(broker, "%RETRY%g")]
    assert [message.body for message in arrived] == [b"at once", b"later", b"at once"]
    for message in arrived:
        assert (message.born_host, message.store_host) == (born, V6)
        assert message.sys_flag & 0x30 == flags
    assert arrived[2].properties["ORIGIN_MESSAGE_ID"] == sent.msg_id
    answer = broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(sent.phy_offset)})
    assert decode_message(bytes(answer.body)).msg_id == sent.msg_id
    broker.close(clean=True)
    report = validate([tmp_path], runner=LocalRunner())
    assert report.is_clean, report.as_dict()
    assert rows_of(tmp_path) == [(sent.msg_id, born, V6, flags)]


def test_a_store_of_ipv4_goes_on_with_ipv6(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"4")
    broker.close(clean=True)
    broker = OneBroker(tmp_path, CONF)
    ask(broker, RecordingChannel(2, "[::1]:50001"), "", b"6")
    hosts = [(message.body, message.store_host) for message in messages_of(broker, "T")]
    assert hosts == [(b"4", "127.0.0.1:17911"), (b"6", V6)]
    broker.close(clean=True)
    assert validate([tmp_path], runner=LocalRunner()).is_clean


@pytest.mark.slow
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("bind_address", ["::1", "::", "0.0.0.0"])
def test_clients_and_tools_reach_a_group_on_ipv6(tmp_path: Path, bind_address: str) -> None:
    """All addresses are those of IPv6, too, as in a JVM."""

    async def main() -> None:
        raft_port, listen_port = free_ports(2)
        namesrv = Namesrv(NamesrvConfig(bind_address=bind_address, listen_port=0))
        await namesrv.start()
        text = (
            GROUP_OF_ONE.format(raft_port=raft_port)
            + f"listenPort={listen_port}\nbindAddress={bind_address}\nbrokerIP1=::1\n"
            + f"namesrvAddr=[::1]:{namesrv.port}\nstorePathRootDir={tmp_path}\nmessageDelayLevel=1s 1s 1s 1s\n"
            + "mapedFileSizeCommitLog=1048576\nmaxHashSlotNum=97\nmaxIndexNum=300\n"
        )
        try:
            async with running(read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]):
                await speak(f"[::1]:{namesrv.port}", f"[::1]:{listen_port}")
        finally:
            await namesrv.close()

    async def speak(namesrv: str, broker: str) -> None:
        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
        async with Producer(namesrv) as producer, Admin(namesrv) as admin:
            sent = await producer.send(Message("T", b"hello"))
            assert await admin.brokers.addresses() == [broker]
            found = await admin.messages.by_offset_id("T", sent.offset_msg_id)
            assert (found.body, found.msg_id) == (b"hello", sent.offset_msg_id)
            assert found.sys_flag & 0x30 == 0x30
            async with PushConsumer(namesrv, "g", {"T": "*"}, config=config) as consumer:
                again = []
                async for batch in consumer.batches():
                    again += batch.messages
                    if len(again) == 2:
                        break
                    await consumer.send_back(batch, delay_level=1)
                assert [message.reconsume_times for message in again] == [0, 1]
                assert [track.group for track in await admin.messages.tracks(found)] == ["g"]

    uvloop.run(main())
