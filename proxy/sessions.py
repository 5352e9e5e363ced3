"""Sessions of clients, by client id: the settings that a client has sent, and the Telemetry stream that reaches it.

Nothing here is needed to serve a request: a client goes on with a proxy that has never heard of it. Times are the
caller's, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.grpc.call import Call
from proxy.protocol.definition import Settings

COUNT_MAX: Final = 20_000


@dataclass(slots=True)
class Session:
    """`settings`: as the client sent them, None until it has. `stream`: its newest Telemetry stream that is open."""

    client_id: str
    seen: float
    settings: Settings | None = None
    stream: Call | None = None

    @property
    def topics(self) -> list[str]:
        """The topics to which a producer says that it sends."""
        return [] if self.settings is None else [topic.name for topic in self.settings.publishing.topics]


class Sessions:
    """Invariant: `_sessions` is in the order in which clients were heard of, the latest last. `_producers` has, by
    topic, the sessions whose settings name it, the next one to be asked first.
    """

    def __init__(self, expire_after_s: float) -> None:
        self._expire_after_s = expire_after_s
        self.on_client_gone: Callable[[str], None] | None = None  # called with its client id
        self._sessions: dict[str, Session] = {}
        self._producers: dict[str, dict[str, Session]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def seen(self, client_id: str, now: float) -> Session:
        """Note that the client was heard of. Returns its session, a new one if it had none."""
        session = self._sessions.pop(client_id, None)
        if session is None:
            self._make_room()
            session = Session(client_id, now)
        self._sessions[client_id] = session
        session.seen = now
        return session

    def _make_room(self) -> None:
        """If there are too many clients, forget one: of those without a stream, the one that was silent for longest."""
        if len(self._sessions) >= COUNT_MAX:
            without_stream = (each.client_id for each in self._sessions.values() if each.stream is None)
            if (client_id := next(without_stream, None)) is not None:
                self.forget(client_id)

    def settings_came(self, client_id: str, stream: Call, settings: Settings, now: float) -> None:
        """Keep the client's settings and stream in place of earlier ones."""
        session = self.seen(client_id, now)
        self._leave_topics(session)
        session.settings, session.stream = settings, stream
        for topic in session.topics:
            self._producers.setdefault(topic, {})[client_id] = session

    def stream_closed(self, client_id: str, stream: Call) -> None:
        """Forget the stream, and keep the settings: the client may open another stream."""
        session = self._sessions.get(client_id)
        if session is not None and session.stream is stream:
            session.stream = None

    def forget(self, client_id: str) -> None:
        """Forget a client that has said that it ends, or was silent for too long."""
        session = self._sessions.pop(client_id, None)
        if session is not None:
            self._leave_topics(session)
        if self.on_client_gone is not None:
            self.on_client_gone(client_id)

    def expire(self, now: float) -> list[str]:
        """Forget the clients that have no stream and were silent for too long. Returns their ids."""
        expired = [
            session.client_id
            for session in self._sessions.values()
            if session.stream is None and now >= session.seen + self._expire_after_s
        ]
        for client_id in expired:
            self.forget(client_id)
        return expired

    def published_topics(self) -> list[str]:
        """Return the topics of producers that have an open stream."""
        return sorted(
            topic
            for topic, sessions in self._producers.items()
            if any(session.stream is not None for session in sessions.values())
        )

    def next_producer(self, topic: str) -> Session | None:
        """Return a producer of the topic that has an open stream, another one each time; None if there is none."""
        sessions = self._producers.get(topic, {})
        for client_id, session in list(sessions.items()):
            if session.stream is not None:
                sessions[client_id] = sessions.pop(client_id)  # to the end
                return session
        return None

    def _leave_topics(self, session: Session) -> None:
        for topic in session.topics:
            others = self._producers.get(topic, {})
            others.pop(session.client_id, None)
            if not others:
                self._producers.pop(topic, None)
