"""A process keeps its time, whoever sets its host's clock."""

from dledger.steady_clock import steady_clock

NS_PER_MS = 1_000_000
HOUR_MS = 3_600_000


class Host:
    wall_ms = 1_700_000_000_000
    monotonic_ms = 5_000

    def wall_ns(self) -> int:
        return self.wall_ms * NS_PER_MS

    def monotonic_ns(self) -> int:
        return self.monotonic_ms * NS_PER_MS


def test_a_wall_clock_that_is_set_moves_nothing_and_counts_for_the_next_process():
    host = Host()
    now_ms = steady_clock(host.wall_ns, host.monotonic_ns)
    assert now_ms() == 1_700_000_000_000
    host.wall_ms += 3 * HOUR_MS
    assert now_ms() == 1_700_000_000_000
    host.monotonic_ms += 250
    assert now_ms() == 1_700_000_000_250
    assert steady_clock(host.wall_ns, host.monotonic_ns)() == host.wall_ms
