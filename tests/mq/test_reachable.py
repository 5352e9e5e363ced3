"""What clients are told where nobody can serve them: a NameServer without brokers, brokers without a leader."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from admin_cluster import NAMESRV, AdminCluster, asked_cluster

from mq.reachable import check_leaders, check_sendable, wait_for_leader
from mqclient import AdminError


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    with asked_cluster(tmp_path, monkeypatch) as made:
        yield made


def told(awaited: Callable[[], Awaitable[None]]) -> str:
    async def ask() -> None:
        await awaited()

    with pytest.raises(AdminError) as caught:
        asyncio.run(ask())
    return str(caught.value)


def test_a_leader_is_enough(cluster: AdminCluster) -> None:
    asyncio.run(wait_for_leader(NAMESRV))


def test_a_name_server_that_is_away_is_named(cluster: AdminCluster) -> None:
    cluster.is_namesrv_down = True
    assert told(lambda: wait_for_leader(NAMESRV)).startswith(f"no NameServer answered ({NAMESRV}: ")


def test_a_name_server_without_brokers_says_so(cluster: AdminCluster) -> None:
    cluster.unregister()
    assert told(lambda: wait_for_leader(NAMESRV, 0)) == (
        "no broker is registered with the NameServer: start one"
    )


def test_a_group_without_a_leader_is_named(cluster: AdminCluster) -> None:
    cluster.unregister_leader()
    text = "broker golden-a has no leader now: a majority of its members must be up"
    assert told(lambda: wait_for_leader(NAMESRV, 0)).startswith(text)
    assert told(lambda: check_leaders(NAMESRV, "TBW102")).startswith(text)


def test_a_topic_that_cannot_be_is_refused_before_anything_is_sent(cluster: AdminCluster) -> None:
    assert "illegal characters" in told(lambda: check_sendable(NAMESRV, "a topic!"))


def test_an_unknown_topic_may_be_made_by_a_send_or_not(cluster: AdminCluster) -> None:
    asyncio.run(check_sendable(NAMESRV, "Unknown"))
    cluster.forget_topic("TBW102")
    assert "there is no topic Unknown, and no broker makes topics by itself" in told(
        lambda: check_sendable(NAMESRV, "Unknown")
    )
