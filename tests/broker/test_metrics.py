"""Figures as Prometheus reads them, and the page that explains them."""

from pathlib import Path

from broker.config.config_file import read_broker_config
from broker.http.metrics import METRICS, PREFIX, ROCKETMQ_PREFIX, full_name, metrics_text
from broker.server import Broker
from dledger.figures import Histogram
from remoting.configuration import parse_properties
from tests.free_ports import free_ports

ROOT = Path(__file__).parents[2]


def samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_figure_is_a_sample_with_its_help_its_kind_and_the_labels_of_its_broker() -> None:
    assert metrics_text({"term": 7}, {"group": "G", "id": "n0"}).splitlines() == [
        "# HELP pydledger_term current term",
        "# TYPE pydledger_term gauge",
        'pydledger_term{group="G",id="n0"} 7',
    ]


def test_yes_and_no_are_1_and_0() -> None:
    text = metrics_text({"serving": True, "doubted": False}, {"id": "n0"})
    assert samples(text) == ['pydledger_serving{id="n0"} 1', 'pydledger_doubted{id="n0"} 0']


def test_values_by_label_are_one_sample_each() -> None:
    text = metrics_text({"watermark_index": {"n0": 5, "n1": -1}}, {"id": "n0"})
    assert samples(text) == [
        'pydledger_watermark_index{id="n0",peer="n0"} 5',
        'pydledger_watermark_index{id="n0",peer="n1"} -1',
    ]
    assert samples(metrics_text({"watermark_index": {}}, {"id": "n0"})) == []


def test_sum_and_count_of_a_summary_have_names_of_their_own() -> None:
    text = metrics_text({"sync_seconds": {"0.5": 0.001, "0.99": 0.25, "sum": 1.5, "count": 700}}, {})
    assert "# TYPE pydledger_sync_seconds summary" in text
    assert samples(text) == [
        'pydledger_sync_seconds{quantile="0.5"} 0.001',
        'pydledger_sync_seconds{quantile="0.99"} 0.25',
        "pydledger_sync_seconds_sum{} 1.5",
        "pydledger_sync_seconds_count{} 700",
    ]


def test_a_histogram_counts_what_is_up_to_each_bound() -> None:
    histogram = Histogram((5, 60))
    for value in (0.5, 5, 7, 100):
        histogram.add(value)
    text = metrics_text({"rocketmq_finish_message_latency": {"T": histogram}}, {"id": "n0"})
    name, labels = "rocketmq_finish_message_latency", 'id="n0",topic="T"'
    assert f"# TYPE {name} histogram" in text
    assert samples(text) == [
        f'{name}_bucket{{{labels},le="5"}} 2',
        f'{name}_bucket{{{labels},le="60"}} 3',
        f'{name}_bucket{{{labels},le="+Inf"}} 4',
        f"{name}_sum{{{labels}}} 112.5",
        f"{name}_count{{{labels}}} 4",
    ]


def test_a_group_may_have_any_name() -> None:
    assert samples(metrics_text({"term": 1}, {"group": 'a "b"\\\n'})) == [
        r'pydledger_term{group="a \"b\"\\\n"} 1'
    ]


def test_the_page_and_the_broker_have_the_same_metrics_in_the_same_words(tmp_path: Path) -> None:
    rows = [
        f"| `{full_name(name)}` | {metric.kind.value} "
        f"| {f'`{metric.label}`' if metric.label else ''} | {metric.meaning} |"
        for name, metric in METRICS.items()
    ]
    page = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    assert [line for line in page if line.startswith((f"| `{PREFIX}", f"| `{ROCKETMQ_PREFIX}"))] == rows


def test_a_broker_offers_all_metrics_and_no_others(tmp_path: Path) -> None:
    raft_port, listen_port = free_ports(2)
    text = f"""
enableDLegerCommitLog=true
dLegerGroup=G
dLegerPeers=n0-127.0.0.1:{raft_port}
dLegerSelfId=n0
listenPort={listen_port}
storePathRootDir={tmp_path}
mapedFileSizeCommitLog=1048576
maxHashSlotNum=97
maxIndexNum=300
"""
    config = read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]
    assert Broker(config).figures().keys() == METRICS.keys()
