"""The shape in which each room tells of itself in numbers: a plain mapping that its owner merges with those of others.

A name has a value, or values by label. What the names mean, and how they are written for a program that watches, is
the business of who shows them.
"""

from collections.abc import Mapping

Figures = Mapping[str, float | Mapping[str, float]]
