"""What a producer can be told."""

from __future__ import annotations

from dataclasses import dataclass

from auth.credentials import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """`retry_times`: further tries after an attempt that ended unknown (Java's default). With 0, an unknown end is
    reported as such and nothing is ever stored twice."""

    send_timeout_s: float = 3.0
    retry_times: int = 2
    compress_over: int = 4096  # bytes of a body
    body_size_max: int = 4 * 1024 * 1024  # bytes; the broker's default limit
    default_topic_queue_nums: int = 4  # queues of a topic that a send creates
    retry_pause_s: float = 0.02  # first pause while a group elects; doubles
    retry_pause_max_s: float = 0.1
    stalled_after_s: float = 0.3  # no answer for so long: ask whether somebody else leads now
    credentials: Credentials | None = None  # None: those of the environment, if it has any
