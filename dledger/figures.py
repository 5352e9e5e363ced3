"""The shape in which each room tells of itself in numbers: a plain mapping that its owner merges with those of others.

A name has a value, or values or histograms by label. What the names mean, and how they are written for a program that
watches, is the business of what shows them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence


class Histogram:
    """How many values there were, by size: `counts[i]` are above bounds[i - 1] and not above bounds[i]."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one: above all bounds
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Figures = Mapping[str, float | Mapping[str, float] | Mapping[str, Histogram]]
