"""Which brokers a producer had better leave alone for a while.

Java's MQFaultStrategy isolates a broker for 2 to 30 s by how slow it was, if it is switched on. Here only one that
refused, broke off or answered nothing is avoided, for a time that doubles with each failure, and an answer ends that: a
group elects in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqclient.message_queue import MessageQueue

AVOIDED_S_MIN = 0.1
AVOIDED_S_MAX = 10.0


class BrokerFaults:
    """Times are the caller's, in seconds. Invariant: `usable` never leaves a sender without a queue that it had."""

    def __init__(self) -> None:
        self._avoided: dict[str, tuple[float, float]] = {}  # broker name to (until, for how long)

    def failed(self, broker_name: str, now: float) -> None:
        until, period = self._avoided.get(broker_name, (0.0, 0.0))
        # Many sends fail together with one broker: while it is avoided, they are one failure.
        if now >= until:
            period = min(max(period * 2, AVOIDED_S_MIN), AVOIDED_S_MAX)
        self._avoided[broker_name] = (now + period, period)

    def answered(self, broker_name: str) -> None:
        self._avoided.pop(broker_name, None)

    def usable(self, queues: Sequence[MessageQueue], now: float) -> Sequence[MessageQueue]:
        """Queues of brokers that are not avoided; all of them if there are no such."""
        if not self._avoided:
            return queues
        avoided = {name for name, (until, _) in self._avoided.items() if now < until}
        return [queue for queue in queues if queue.broker_name not in avoided] or queues
