"""What a gRPC client was told and did, as a history that faults/ judges; keys are PRODUCER/SEQUENCE.

The times are the test's own: when it wrote a command, and when it read an event. So what seems to have come after an
acknowledgement surely did. A failure says nothing of what was stored, whatever the client tells.
"""

from collections.abc import Iterator
from typing import Any

from originals.doors.grpc_client import GrpcClient

from faults.history import (
    Acknowledgement,
    AnyRecord,
    Recall,
    RecallBegun,
    Received,
    SendBegun,
    Sent,
    Timer,
    TimerBegun,
    Transaction,
    TransactionBegun,
    TransactionSaid,
)


def history_of(client: GrpcClient, simple_groups: set[str], attempts: int) -> list[AnyRecord]:
    """`attempts`: how often its producer may send a message."""
    return sorted(_History(client, simple_groups, attempts).records(), key=lambda record: record.at_ns)


class _History:
    def __init__(self, client: GrpcClient, simple_groups: set[str], attempts: int) -> None:
        self._client = client
        self._simple_groups = simple_groups
        self._attempts = attempts

    def records(self) -> Iterator[AnyRecord]:
        for at_ns, words in self._client.commands:
            if words[0] == "send":
                yield from self._send(at_ns, words)
            elif words[0] == "transact":
                yield from self._transaction(at_ns, words)
            elif words[0] == "recall":
                yield from self._recall(at_ns, words)
            elif words[0] == "ack":
                yield self._acknowledgement(at_ns, words)
        for event in self._client.told("checked"):
            name = _name(event["key"])
            yield TransactionSaid(at_ns=event["at_ns"], state=event["decision"], asked=True, **name)
        for event in self._client.told("received"):
            yield from self._received(event)

    def _send(self, at_ns: int, words: list[str]) -> Iterator[AnyRecord]:
        name, topic = _name(words[1]), words[2]
        values = dict(word.split("=", 1) for word in words[3:])
        ended_ns, outcome = self._end("send", words[1])
        end: dict[str, Any] = {"at_ns": ended_ns, "begun_ns": at_ns, "topic": topic, "outcome": outcome}
        if "at_ms" in values:
            at_ms = int(values["at_ms"])
            due_ns = at_ns + (at_ms - int(values["now_ms"])) * 1_000_000
            yield TimerBegun(at_ns=at_ns, topic=topic, due_ns=due_ns, due_ms=at_ms, **name)
            yield Timer(**end, attempts=self._attempts, **name)
        else:
            yield SendBegun(at_ns=at_ns, topic=topic, **name)
            yield Sent(**end, message_group=values.get("group", ""), attempts=self._attempts, **name)

    def _transaction(self, at_ns: int, words: list[str]) -> Iterator[AnyRecord]:
        name, topic, now = _name(words[1]), words[2], words[3]
        yield TransactionBegun(at_ns=at_ns, topic=topic, **name)
        yield TransactionSaid(at_ns=at_ns, state=now, **name)  # type: ignore[arg-type]
        # What comes second may fail alone.
        sent = self._client.told("sent", key=words[1])
        ended_ns, outcome = (sent[0]["at_ns"], "ok") if sent else self._end("transact", words[1])
        yield Transaction(
            at_ns=ended_ns, begun_ns=at_ns, topic=topic, outcome=outcome, attempts=self._attempts, **name
        )

    def _recall(self, at_ns: int, words: list[str]) -> Iterator[AnyRecord]:
        name = _name(words[1])
        ended_ns, outcome = self._end("recall", words[1])
        yield RecallBegun(at_ns=at_ns, **name)
        yield Recall(at_ns=ended_ns, begun_ns=at_ns, outcome=outcome, **name)

    def _end(self, command: str, key: str) -> tuple[int, Any]:
        """When it ended, and how. AssertionError while it has not."""
        done = self._client.told("recalled" if command == "recall" else "sent", key=key)
        if done:
            return done[0]["at_ns"], "ok"
        failed = self._client.told("failed", of=command, key=key)
        assert failed, f"{command} of {key} has not ended"
        return failed[0]["at_ns"], "unknown"

    def _acknowledgement(self, at_ns: int, words: list[str]) -> AnyRecord:
        ends = [
            event
            for event in self._client.events
            if event["at_ns"] > at_ns
            and event.get("key") == words[1]
            and (event["event"] == "acked" or (event["event"], event.get("of")) == ("failed", "ack"))
        ]
        assert ends, f"an acknowledgement of {words[1]} has not ended"
        outcome: Any = "ok" if ends[0]["event"] == "acked" else "unknown"
        return Acknowledgement(
            at_ns=ends[0]["at_ns"], begun_ns=at_ns, group=words[2], outcome=outcome, **_name(words[1])
        )

    def _received(self, event: dict[str, Any]) -> Iterator[AnyRecord]:
        group, at_ns, name = event["group"], event["at_ns"], _name(event["key"])
        is_simple = group in self._simple_groups
        yield Received(
            at_ns=at_ns,
            begun_ns=self._asked_ns(group, at_ns) if is_simple else at_ns,
            group=group,
            topic=event["topic"],
            message_group=event["message_group"] or "",
            attempt=event["attempt"],
            **name,
        )
        if not is_simple and not event["fails"]:
            # The client acknowledges it, and tells nobody when.
            yield Acknowledgement(at_ns=at_ns, begun_ns=at_ns, group=group, outcome="unknown", **name)

    def _asked_ns(self, group: str, at_ns: int) -> int:
        """When the newest `receive` before was written: there is one at a time."""
        return max(
            ns for ns, words in self._client.commands if words[:2] == ["receive", group] and ns <= at_ns
        )


def _name(key: str) -> dict[str, Any]:
    producer, _, sequence = key.partition("/")
    return {"producer": producer, "sequence": int(sequence)}
