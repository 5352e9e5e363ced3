"""What is measured of each system: one line of the table is one call of the load program (load/)."""

from dataclasses import dataclass, replace

from figures import FAR_MODES, MODES, TRIES
from plot import size_name

PENDING = "500,000 pending timers"


@dataclass(frozen=True)
class Line:
    """`kind`: what its figures are about (figures.py). `tries`: at most, while something else disturbs it."""

    name: str
    kind: str
    command: str
    options: tuple[tuple[str, int | str], ...] = ()
    is_quick: bool = True
    tries: int = TRIES

    def arguments(self) -> list[str]:
        return [f"-{name}={value}" for name, value in self.options]


def send_line(senders: int, conns: int, size: int) -> Line:
    names = {(1, 1): "one sender", (64, 1): "64 senders on one connection"}
    name = names.get((senders, conns), f"{senders} senders on {conns} connections")
    options = (
        ("senders", senders),
        ("conns", conns),
        ("size", size),
        ("topic", f"S{senders}x{conns}x{size}"),
    )
    kind = "one" if senders == 1 else "rate"
    return Line(f"{name}, {size_name(size)}", kind, "send", options, is_quick=size == 1024)


def tail_line(name: str, groups: int, senders: int, rate: int) -> Line:
    options = (
        *(("senders", senders), ("conns", senders), ("rate", rate), ("groups", groups), ("size", 1024)),
        *(("queues", 4), ("topic", f"Tail{groups}")),
    )
    return Line(name, "tail", "tail", options)


LINES = (
    Line("start to serving", "start", ""),
    Line("idle, three brokers", "idle", "idle", (("seconds", 10),)),
    *(
        send_line(senders, conns, size)
        for size in (1024, 128, 16384)
        for senders, conns in ((64, 1), (8, 8), (64, 64), (512, 512), (1, 1))
    ),
    Line(
        "a lone sender beside 63 busy ones, 1 KiB",
        "lone",
        "send",
        (("senders", 64), ("conns", 64), ("size", 1024), ("lone", "true"), ("topic", "Lone")),
    ),
    tail_line("one group, 200 messages/s", 1, 1, 200),
    tail_line("ten groups, 1,000 messages/s", 10, 8, 1000),
    Line("read back, 1 KiB", "read", "read", (("topic", "S64x1x1024"),)),
)
FAR_LINES = (send_line(256, 4, 1024),)


def transaction_line(senders: int) -> Line:
    plain = send_line(senders, senders, 1024)
    options = (*dict(plain.options, topic=f"Transactions{senders}").items(), ("transactions", "true"))
    return Line(f"transactions, {plain.name}", plain.kind, "send", options)


def timers_line(count: int) -> Line:
    options = (("count", count), ("conns", 8), ("size", 128), ("topic", f"Timers{count}"))
    return Line(f"{count:,} timers due in one second", "late", "timers", options)


def filtered_line(name: str, kind: str, expression: str) -> Line:
    options = (("topic", "Filtered"), ("expression", expression), ("expression-type", kind))
    return Line(f"one message of ten, {name}", "filtered", "read", options)


def pops_line(name: str, batch: int, consumers: int, count: int) -> Line:
    options = (("topic", "Popped"), ("batch", batch), ("senders", consumers), ("conns", 8), ("count", count))
    return Line(f"{name} and acknowledged, {consumers} consumers", "fill", "pop", options)


def recovery_line(name: str, victims: str) -> Line:
    """`victims`: which brokers are killed, and started again at once."""
    options = (("topic", "Pending"), ("due", f"Due-{victims}"), ("size", 128))
    return Line(f"kill -9 of {name}", victims, "recovery", options, is_quick=False, tries=1)


def receive_line(name: str, acks: int) -> Line:
    """`acks`: messages of one acknowledgement."""
    options = (("topic", f"Received{acks}"), ("count", 10_000), ("batch", 32), ("acks", acks), ("senders", 8))
    return Line(f"received by 32, {name}, 8 consumers, 1 KiB", "fill", "receive", options)


_PLAIN = send_line(64, 64, 1024)
_TRANSACTIONS = (
    replace(_PLAIN, options=(*_PLAIN.options, ("warmup", 8))),  # a JVM that has just started is slow
    transaction_line(1),
    transaction_line(64),
)
_PENDING_OPTIONS = (
    *(("topic", "Pending"), ("conns", 8), ("size", 128), ("count", 500_000)),
    *(("deliver-after", 14_400), ("deliver-within", 43_200)),
)
# Of transactions, timers, filters and pops, by mode.
KIND_LINES = {
    "page cache": (
        *_TRANSACTIONS,
        Line(
            "transactions until a group has them, 200/s",
            "tail",
            "tail",
            (*dict(tail_line("", 1, 8, 200).options, topic="TailTransactions").items(), ("transactions", "true")),
        ),
        timers_line(2_000),
        timers_line(50_000),
        Line(
            "100,000 messages to be filtered are sent, 128 B",
            "fill",
            "fill",
            (("topic", "Filtered"), ("conns", 8), ("size", 128), ("count", 100_000), ("every", 10)),
            tries=1,
        ),
        filtered_line("by its tag", "TAG", "A"),
        filtered_line("SQL92, one number", "SQL92", "price > 100"),
        filtered_line(
            "SQL92, five terms",
            "SQL92",
            "price BETWEEN 100 AND 500 AND color IN ('red', 'blue') AND (size IS NULL OR size <> 'L')",
        ),
        Line(
            "100,000 messages to be popped are sent, 128 B",
            "fill",
            "fill",
            (("topic", "Popped"), ("conns", 8), ("size", 128), ("count", 100_000)),
            tries=1,
        ),
        pops_line("popped by 32", 32, 8, 100_000),
        pops_line("popped one by one", 1, 64, 20_000),
    ),
    "fsync": _TRANSACTIONS,
    PENDING: (
        Line("memory before them", "memory", "idle", (("settled", "true"),), is_quick=False, tries=1),
        Line("they are sent, 128 B", "fill", "fill", _PENDING_OPTIONS, is_quick=False, tries=1),
        Line("memory with them", "memory", "idle", (("settled", "true"),), is_quick=False, tries=1),
        recovery_line("the leader", "leader"),
        recovery_line("all", "all"),
    ),
}  # fmt: skip


def warmed_up(line: Line) -> Line:
    """With a start that lets a JVM compile what is called."""
    return replace(line, options=(*line.options, ("warmup", 5)))


# Through a gRPC proxy.
PROXY_LINES = (
    Line("the proxy without clients", "memory", "idle", (("seconds", 5),)),
    warmed_up(send_line(64, 64, 1024)),
    send_line(1, 1, 1024),
    receive_line("acknowledged one by one", 1),
    receive_line("acknowledged by 32", 32),
    Line(
        "from send to receive, 200 messages/s",
        "tail",
        "tail",
        (*dict(tail_line("", 1, 1, 200).options, topic="ProxyTail").items(), ("warmup", 3)),
    ),
    Line("the proxy with 1,000 idle clients", "clients", "idle", (("clients", 1_000), ("seconds", 10))),
)
LINES_BY_TABLE = {
    "benchmarks": {mode: FAR_LINES if mode in FAR_MODES else LINES for mode in (*MODES, *FAR_MODES)},
    "kinds": KIND_LINES,
    "proxy": {"page cache": PROXY_LINES},
}


def lines_by_mode(name: str, *, quick: bool) -> dict[str, tuple[Line, ...]]:
    """Of the table with this name."""
    by_mode = LINES_BY_TABLE[name]
    if not quick:
        return by_mode
    return {
        mode: tuple(line for line in lines if line.is_quick)
        for mode, lines in by_mode.items()
        if mode not in FAR_MODES
    }
