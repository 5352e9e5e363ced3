"""Sessions of clients, by client id: what each has said of itself, and the Telemetry stream that reaches it.

Nothing here is needed to serve a request: a client goes on with a proxy that has never heard of it. Times are the
caller's, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from proxy.grpc.call import Call
from proxy.protocol.definition import ClientType, Code
from proxy.status import StatusError

COUNT_MAX: Final = 20_000
TOPICS_SIZE_MAX: Final = 64 * 1024 * 1024
_TOPIC_SIZE: Final = 400  # what one topic of one client takes besides its name: measured, 106 to 398 bytes


@dataclass(slots=True)
class Session:
    """`client_type`: None until the client has sent settings. `stream`: its newest Telemetry stream that is open.
    `topics`: those to which it says that it sends; none without a stream.
    """

    client_id: str
    seen: float
    client_type: ClientType | None = None
    stream: Call | None = None
    topics: tuple[str, ...] = ()


class Sessions:
    """Invariant: `_sessions` is in the order in which clients were heard of, the latest last. `_producers` has, by
    topic, the sessions that send to it, the next one to be asked first. `_topics_size` is what the topics of all
    sessions take, at most TOPICS_SIZE_MAX.
    """

    def __init__(self, expire_after_s: float) -> None:
        self._expire_after_s = expire_after_s
        self.on_client_gone: Callable[[str], None] | None = None  # called with its client id
        self._sessions: dict[str, Session] = {}
        self._producers: dict[str, dict[str, Session]] = {}
        self._topics_size = 0

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

    def settings_came(
        self, client_id: str, stream: Call, client_type: ClientType, topics: Iterable[str], now: float
    ) -> None:
        """Keep the client's type, topics and stream in place of earlier ones. Raises StatusError where all clients
        together have too many topics; what is known of the client then stays.
        """
        session = self.seen(client_id, now)
        topics = tuple(dict.fromkeys(topics))
        size = self._topics_size - _size(session.topics) + _size(topics)
        if size > TOPICS_SIZE_MAX:
            raise StatusError(
                Code.TOO_MANY_REQUESTS,
                f"the topics of all producers take {size} bytes of the proxy, {TOPICS_SIZE_MAX} are allowed: "
                f"try again later, or name fewer than {len(topics)} topics",
            )
        self._leave_topics(session)
        session.client_type, session.stream, session.topics = client_type, stream, topics
        self._topics_size = size
        for topic in topics:
            self._producers.setdefault(topic, {})[client_id] = session

    def stream_closed(self, client_id: str, stream: Call) -> None:
        """Forget the stream and the topics. The client names them again on its next stream."""
        session = self._sessions.get(client_id)
        if session is not None and session.stream is stream:
            session.stream = None
            self._leave_topics(session)

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
        return sorted(self._producers)

    def next_producer(self, topic: str) -> Session | None:
        """Return a producer of the topic that has an open stream, another one each time; None if there is none."""
        sessions = self._producers.get(topic)
        if sessions is None:
            return None
        client_id = next(iter(sessions))
        session = sessions[client_id] = sessions.pop(client_id)  # to the end
        return session

    def _leave_topics(self, session: Session) -> None:
        self._topics_size -= _size(session.topics)
        for topic in session.topics:
            others = self._producers[topic]
            del others[session.client_id]
            if not others:
                del self._producers[topic]
        session.topics = ()


def _size(topics: tuple[str, ...]) -> int:
    return sum(len(topic) + _TOPIC_SIZE for topic in topics)
