"""Work for runners: functions that Spark's workers import by name."""

from collections.abc import Iterator


def squares(number: int) -> Iterator[int]:
    yield number * number
    yield -number


def by_parity(number: int) -> Iterator[tuple[tuple[str, int], int]]:
    yield ("parity", number % 2), number


def sum_of(key: tuple[str, int], values: list[int]) -> Iterator[tuple[str, int, int, int]]:
    yield (*key, len(values), sum(values))


def fails_at_three(number: int) -> Iterator[int]:
    if number == 3:
        raise ValueError("three is damaged")
    yield number
