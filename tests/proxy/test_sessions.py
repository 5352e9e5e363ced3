"""What is known of clients, for how long, and which of them are asked."""

import pytest
from fake_call import FakeCall

from proxy.protocol.definition import ClientType, Code
from proxy.sessions import Session, Sessions
from proxy.status import StatusError


def came(sessions: Sessions, client_id: str, *topics: str, stream: FakeCall | None = None) -> FakeCall:
    """Tell the settings of a producer. Returns its stream."""
    stream = stream or FakeCall()
    sessions.settings_came(client_id, stream, ClientType.PRODUCER, topics, 0)
    return stream


def test_producers_of_a_topic_are_asked_in_turn() -> None:
    sessions = Sessions(120)
    for client_id in ("a", "b", "c"):
        came(sessions, client_id, "T")
    asked = [sessions.next_producer("T") for _ in range(4)]
    assert [session.client_id for session in asked if session is not None] == ["a", "b", "c", "a"]
    assert sessions.next_producer("other") is None


def test_one_without_a_stream_is_not_asked_but_still_known() -> None:
    sessions = Sessions(120)
    stream = FakeCall()
    came(sessions, "a", "T", stream=stream)
    assert sessions.published_topics() == ["T"]
    sessions.stream_closed("a", stream)
    assert sessions.next_producer("T") is None
    assert sessions.published_topics() == []
    assert sessions.get("a") is not None


def test_the_end_of_an_older_stream_does_not_end_the_newer_one() -> None:
    sessions = Sessions(120)
    older, newer = FakeCall(), FakeCall()
    came(sessions, "a", "T", stream=older)
    came(sessions, "a", "T", stream=newer)
    sessions.stream_closed("a", older)
    session = sessions.next_producer("T")
    assert session is not None
    assert session.stream is newer


def test_new_settings_replace_the_topics() -> None:
    sessions = Sessions(120)
    stream = FakeCall()
    came(sessions, "a", "T", "U", stream=stream)
    came(sessions, "a", "U", "V", stream=stream)
    assert sessions.published_topics() == ["U", "V"]


def test_a_client_is_gone_when_it_says_so_or_is_not_heard_of() -> None:
    sessions = Sessions(120)
    gone: list[str] = []
    sessions.on_client_gone = gone.append
    stream = FakeCall()
    came(sessions, "silent", "T", stream=stream)
    came(sessions, "said", "T")
    sessions.seen("beating", 0)
    sessions.forget("said")
    assert sessions.expire(1000) == ["beating"]  # the silent one has a stream
    sessions.stream_closed("silent", stream)
    sessions.seen("silent", 1000)
    assert sessions.expire(1119) == []
    assert sessions.expire(1120) == ["silent"]
    assert gone == ["said", "beating", "silent"]
    assert sessions.published_topics() == []
    assert len(sessions) == 0


def test_of_too_many_clients_the_one_that_was_silent_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody can send heartbeats of clients that do not exist."""
    monkeypatch.setattr("proxy.sessions.COUNT_MAX", 3)
    sessions = Sessions(120)
    gone: list[str] = []
    sessions.on_client_gone = gone.append
    came(sessions, "speaks", "T")
    for client_id in ("a", "b", "a", "c"):
        sessions.seen(client_id, 1)
    assert gone == ["b"]
    assert len(sessions) == 3
    assert sessions.get("speaks") is not None


def test_topics_are_kept_while_the_stream_is_open() -> None:
    sessions = Sessions(120)
    stream = came(sessions, "a", "T", "U", "T")
    assert sessions.get("a") == Session("a", 0, ClientType.PRODUCER, stream, ("T", "U"))
    sessions.stream_closed("a", stream)
    assert sessions.get("a") == Session("a", 0, ClientType.PRODUCER, None, ())


def test_topics_of_all_clients_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection alone has 1024 streams, and each can tell a megabyte of topics."""
    monkeypatch.setattr("proxy.sessions.TOPICS_SIZE_MAX", 3 * 410)
    sessions = Sessions(120)
    first = came(sessions, "a", "T000000001", "T000000002")
    second = came(sessions, "b", "T000000001")
    came(sessions, "without topics")
    with pytest.raises(StatusError) as error:
        came(sessions, "c", "T000000001")
    assert error.value.code == Code.TOO_MANY_REQUESTS
    assert "take 1640 bytes of the proxy, 1230 are allowed" in error.value.message
    with pytest.raises(StatusError):
        came(sessions, "b", "T000000001", "T000000003", stream=second)
    came(sessions, "a", "T000000003", "T000000004", stream=first)  # as many as before
    assert sessions.published_topics() == ["T000000001", "T000000003", "T000000004"]
    sessions.forget("a")
    came(sessions, "c", "T000000001", "T000000002")
    sessions.stream_closed("b", second)
    came(sessions, "a", "T000000001")
    assert sessions.published_topics() == ["T000000001", "T000000002"]
