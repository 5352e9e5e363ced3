"""What is known of clients, for how long, and which of them are asked."""

import pytest
from fake_call import FakeCall

from proxy.protocol.definition import ClientType, Settings
from proxy.sessions import Sessions


def producer_settings(*topics: str) -> Settings:
    settings = Settings(client_type=ClientType.PRODUCER)
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings


def test_producers_of_a_topic_are_asked_in_turn() -> None:
    sessions = Sessions(120)
    for client_id in ("a", "b", "c"):
        sessions.settings_came(client_id, FakeCall(), producer_settings("T"), 0)
    asked = [sessions.next_producer("T") for _ in range(4)]
    assert [session.client_id for session in asked if session is not None] == ["a", "b", "c", "a"]
    assert sessions.next_producer("other") is None


def test_one_without_a_stream_is_not_asked_but_still_known() -> None:
    sessions = Sessions(120)
    stream = FakeCall()
    sessions.settings_came("a", stream, producer_settings("T"), 0)
    assert sessions.published_topics() == ["T"]
    sessions.stream_closed("a", stream)
    assert sessions.next_producer("T") is None
    assert sessions.published_topics() == []
    assert sessions.get("a") is not None


def test_the_end_of_an_older_stream_does_not_end_the_newer_one() -> None:
    sessions = Sessions(120)
    older, newer = FakeCall(), FakeCall()
    sessions.settings_came("a", older, producer_settings("T"), 0)
    sessions.settings_came("a", newer, producer_settings("T"), 0)
    sessions.stream_closed("a", older)
    session = sessions.next_producer("T")
    assert session is not None
    assert session.stream is newer


def test_new_settings_replace_the_topics() -> None:
    sessions = Sessions(120)
    stream = FakeCall()
    sessions.settings_came("a", stream, producer_settings("T", "U"), 0)
    sessions.settings_came("a", stream, producer_settings("U", "V"), 0)
    assert sessions.published_topics() == ["U", "V"]


def test_a_client_is_gone_when_it_says_so_or_is_not_heard_of() -> None:
    sessions = Sessions(120)
    gone: list[str] = []
    sessions.on_client_gone = gone.append
    stream = FakeCall()
    sessions.settings_came("silent", stream, producer_settings("T"), 0)
    sessions.settings_came("said", FakeCall(), producer_settings("T"), 0)
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
    sessions.settings_came("speaks", FakeCall(), producer_settings("T"), 0)
    for client_id in ("a", "b", "a", "c"):
        sessions.seen(client_id, 1)
    assert gone == ["b"]
    assert len(sessions) == 3
    assert sessions.get("speaks") is not None
