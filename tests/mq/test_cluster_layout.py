from pathlib import Path

import pytest

from broker.config.broker_config import FlushDiskType
from broker.config.config_file import read_broker_config
from mq.cluster_layout import (
    ClusterLayout,
    ClusterOptionError,
    layout_of_json,
    lines_with_earlier,
    parse_conf_line,
    parse_peer_dial,
)
from remoting.configuration import parse_properties


def test_ports_follow_the_contract() -> None:
    layout = ClusterLayout(dir="/d", groups=2, base_port=9876)
    assert layout.namesrv == "127.0.0.1:9876"
    assert [(node.id, node.group) for node in layout.nodes] == [
        ("n0", "RaftNode00"),
        ("n1", "RaftNode00"),
        ("n2", "RaftNode00"),
        ("n3", "RaftNode01"),
        ("n4", "RaftNode01"),
        ("n5", "RaftNode01"),
    ]
    n4 = layout.node("n4")
    assert (n4.listen, n4.raft, n4.http) == ("127.0.0.1:9926", "127.0.0.1:9931", "127.0.0.1:9932")


def test_clusters_with_base_ports_100_apart_share_no_port() -> None:
    one = ClusterLayout(dir="/d", nodes_per_group=3, groups=3, base_port=9876)
    other = ClusterLayout(dir="/d", nodes_per_group=3, groups=3, base_port=9976)
    assert one.ports().keys().isdisjoint(other.ports())
    assert len(one.ports()) == 1 + 9 * 3


def test_a_broker_reads_its_conf_file_as_it_is_meant() -> None:
    layout = ClusterLayout(
        dir="/d",
        base_port=9876,
        peer_dials={"n0:n1": "127.0.0.1:7001", "n0:n2": "127.0.0.1:7002", "n1:n0": "127.0.0.1:7003"},
        conf={"flushDiskType": "ASYNC_FLUSH", "mapedFileSizeCommitLog": "16777216"},
    )
    text = layout.broker_conf(layout.node("n0"))
    config, warnings = read_broker_config(parse_properties(text, "n0"), "n0")
    assert warnings == []
    assert config.broker_name == "RaftNode00"
    assert config.listen_port == 9886
    assert config.http_port == 9892
    assert config.namesrv_addr == ("127.0.0.1:9876",)
    assert config.dledger.self_id == "n0"
    assert [str(peer) for peer in config.dledger.peers.values()] == [
        "127.0.0.1:9891",
        "127.0.0.1:9901",
        "127.0.0.1:9911",
    ]
    assert {peer: str(address) for peer, address in config.dledger.peer_dial.items()} == {
        "n1": "127.0.0.1:7001",
        "n2": "127.0.0.1:7002",
    }
    assert config.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert config.store.mapped_file_size_commit_log == 16777216
    assert Path(config.store.store_path_root_dir) == Path("/d/n0/store")


def test_a_layout_survives_its_state_file() -> None:
    layout = ClusterLayout(dir="/d", groups=2, peer_dials={"n0:n1": "h:1"}, conf={"a": "b"})
    assert layout_of_json(layout.to_json()) == layout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nodes_per_group": 0}, "at least 1"),
        ({"groups": 0}, "at least 1"),
        ({"base_port": 65510}, "65535 the last"),
        ({"base_port": 0}, "1 is the first"),
        ({"conf": {"flushDiskType": "ASYNC_FLUSH", "listenPort": "1"}}, "--conf listenPort=…: each broker"),
        ({"peer_dials": {"n0:n9": "h:1"}}, "give FROM:TO"),
        ({"peer_dials": {"n0:n0": "h:1"}}, "give FROM:TO"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, int], reason: str) -> None:
    with pytest.raises(ClusterOptionError, match=reason):
        ClusterLayout(dir="/d", **options)  # type: ignore[arg-type]


def test_conf_lines_of_the_last_up_stay_until_they_are_taken_out() -> None:
    earlier = {"mapedFileSizeCommitLog": "1048576", "flushDiskType": "ASYNC_FLUSH"}
    given = dict(map(parse_conf_line, ("flushDiskType=", "traceOn=false")))
    assert lines_with_earlier(given, earlier) == {"mapedFileSizeCommitLog": "1048576", "traceOn": "false"}


def test_option_texts_are_read_or_refused() -> None:
    assert parse_peer_dial("n0:n1=127.0.0.1:7001") == ("n0:n1", "127.0.0.1:7001")
    assert parse_conf_line("flushDiskType = ASYNC_FLUSH") == ("flushDiskType", "ASYNC_FLUSH")
    for text in ("n0=127.0.0.1:1", "n0:n1=127.0.0.1", "n0:n1", "n0:n1=h:99999"):
        with pytest.raises(ClusterOptionError, match="FROM:TO=HOST:PORT"):
            parse_peer_dial(text)
    with pytest.raises(ClusterOptionError, match="key=value"):
        parse_conf_line("flushDiskType")
    with pytest.raises(ClusterOptionError, match="n0, n1, n2"):
        ClusterLayout(dir="/d").node("n7")
