"""What an expression's parts become: closures over the properties of one message.

A value is None (SQL's NULL), a bool, a string or a number. Every part has one kind of value besides None, known before
any message: so which of Java's conversions a comparison needs is decided once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec

from message.errors import SubscriptionParseError
from message.sql.errors import EvaluationError
from message.sql.java_numbers import READERS, NumberType, double_order, read_ordered_double

Properties = Callable[[bytes], str | None]
"""A property by its name; None: the message has none of this name."""

Truth = Callable[[Properties], bool | None]
"""May raise EvaluationError."""

Evaluate = Callable[[Properties], Any]

ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Kind(Enum):
    PROPERTY = "a property"
    BOOLEAN = "a truth value"
    NUMBER = "a number"
    STRING = "a string"
    NOTHING = "nothing"  # always None: the negation of what is no number


class Operand(msgspec.Struct, frozen=True):
    """`number`: the value of one of kind NUMBER, which is known before any message."""

    kind: Kind
    evaluate: Evaluate
    is_literal: bool = False
    number: float = 0
    number_type: NumberType = NumberType.INTEGER

    @property
    def is_text(self) -> bool:
        return self.kind in (Kind.PROPERTY, Kind.STRING)


# -- leaves ------------------------------------------------------------------------------------------------------------


def property_named(name: str) -> Operand:
    key = name.encode()
    return Operand(Kind.PROPERTY, lambda properties: properties(key))


def literal(kind: Kind, value: bool | str | None) -> Operand:
    return Operand(kind, lambda properties: value, is_literal=True)


def number_of(value: float, number_type: NumberType, *, is_literal: bool = True) -> Operand:
    return Operand(Kind.NUMBER, lambda properties: value, is_literal, value, number_type)


def boolean(truth: Truth) -> Operand:
    return Operand(Kind.BOOLEAN, truth)


# -- truth -------------------------------------------------------------------------------------------------------------


def truth_of(operand: Operand) -> Truth:
    """Raises SubscriptionParseError for what has no truth value. A property that is there is false, as in Java."""
    evaluate = operand.evaluate
    if operand.kind is Kind.BOOLEAN:
        return evaluate
    if operand.kind is Kind.PROPERTY:
        return lambda properties: None if evaluate(properties) is None else False
    raise SubscriptionParseError(f"a truth value is needed, and this is {operand.kind.value}")


def negated(operand: Operand) -> Operand:
    """The arithmetic one."""
    if operand.kind is Kind.NUMBER:
        return number_of(-operand.number, operand.number_type, is_literal=False)
    evaluate = operand.evaluate

    def nothing(properties: Properties) -> None:
        evaluate(properties)  # for its error

    return Operand(Kind.NOTHING, nothing)


def is_not(truth: Truth) -> Truth:
    def evaluate(properties: Properties) -> bool | None:
        value = truth(properties)
        return None if value is None else not value

    return evaluate


def any_of(truths: Sequence[Truth]) -> Truth:
    return _until(truths, decisive=True)


def all_of(truths: Sequence[Truth]) -> Truth:
    return _until(truths, decisive=False)


def _until(truths: Sequence[Truth], *, decisive: bool) -> Truth:
    """The first decisive one ends it, with all behind it left alone; else None counts before the other."""

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for truth in truths:
            value = truth(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


# -- comparisons -------------------------------------------------------------------------------------------------------


def equal(left: Operand, right: Operand) -> Truth:
    """Raises SubscriptionParseError for literals that Java compares with nothing."""
    for operand in (left, right):
        if operand.is_literal and operand.evaluate(lambda name: None) is None:
            raise SubscriptionParseError("NULL cannot be compared: write IS NULL")
    if left.is_literal and right.is_literal and left.kind is Kind.BOOLEAN and right.kind is not Kind.BOOLEAN:
        raise SubscriptionParseError(f"TRUE and FALSE cannot be compared with {right.kind.value}")
    same = _comparison(left, right, operator.eq)
    of_left, of_right = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value, other = of_left(properties), of_right(properties)
        if value is None:
            return True if other is None else None
        return other is not None and same(value, other)

    return evaluate


def is_null(operand: Operand) -> Truth:
    of_operand = operand.evaluate
    return lambda properties: of_operand(properties) is None


def ordered(left: Operand, sign: str, right: Operand) -> Truth:
    """Raises SubscriptionParseError for operands that have no order."""
    for operand in (left, right):
        if operand.kind in (Kind.BOOLEAN, Kind.STRING):
            raise SubscriptionParseError(f"{sign} compares numbers, and this is {operand.kind.value}")
    is_so = _comparison(left, right, ORDERINGS[sign])
    of_left, of_right = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value = of_left(properties)
        if value is None:
            return None
        other = of_right(properties)
        return None if other is None else is_so(value, other)

    return evaluate


def between(value: Operand, low: Operand, high: Operand) -> Truth:
    """Raises SubscriptionParseError as `ordered` does, and for literals of which the first is above the second."""
    within = all_of([ordered(value, ">=", low), ordered(value, "<=", high)])
    if low.is_literal and high.is_literal and _comparison(high, low, operator.lt)(high.number, low.number):
        raise SubscriptionParseError(f"BETWEEN {low.number} AND {high.number}: the first is above the second")
    return within


def not_between(value: Operand, low: Operand, high: Operand) -> Truth:
    return any_of([ordered(value, "<", low), ordered(value, ">", high)])


def is_in(operand: Operand, texts: frozenset[str], *, is_negated: bool) -> Truth:
    if operand.kind is not Kind.PROPERTY:
        raise SubscriptionParseError(f"IN needs a property on its left, and this is {operand.kind.value}")
    of_operand = operand.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value = of_operand(properties)
        return None if value is None else (value in texts) is not is_negated

    return evaluate


STRING_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def has_part(operand: Operand, word: str, part: str, *, is_negated: bool) -> Truth:
    """CONTAINS and its like: without a string or without a part they are false, negated as well."""
    if not part:
        return lambda properties: False
    test, of_operand = STRING_TESTS[word], operand.evaluate

    def evaluate(properties: Properties) -> bool:
        value = of_operand(properties)
        return isinstance(value, str) and test(value, part) is not is_negated

    return evaluate


def _comparison(
    left: Operand, right: Operand, compare: Callable[[Any, Any], bool]
) -> Callable[[Any, Any], bool]:
    """Of two values that are not None: Java's conversions by the kinds of both, then `compare`."""
    if left.is_text and right.is_text:
        if compare is operator.eq:
            return operator.eq
        return lambda value, other: compare(read_ordered_double(value), read_ordered_double(other))
    if left.kind is Kind.NUMBER and right.kind is Kind.NUMBER:
        if NumberType.DOUBLE in (left.number_type, right.number_type):
            return lambda value, other: compare(double_order(float(value)), double_order(float(other)))
        return compare
    if left.is_text and right.kind is Kind.NUMBER:
        read, number = READERS[right.number_type], _ordered_number(right)
        return lambda value, other: compare(read(value), number)
    if left.kind is Kind.NUMBER and right.is_text:
        read, number = READERS[left.number_type], _ordered_number(left)
        return lambda value, other: compare(number, read(other))
    # What follows is equality alone: truth values have no order.
    if left.kind is Kind.BOOLEAN and right.kind is Kind.BOOLEAN:
        return compare
    if left.is_text and right.kind is Kind.BOOLEAN:
        return lambda value, other: compare(value.lower() == "true", other)
    if left.kind is Kind.BOOLEAN and right.is_text:
        return _cannot_be_cast
    return lambda value, other: False


def _ordered_number(operand: Operand) -> Any:
    is_double = operand.number_type is NumberType.DOUBLE
    return double_order(operand.number) if is_double else operand.number


def _cannot_be_cast(value: object, other: object) -> bool:
    raise EvaluationError("a truth value on the left is not compared with a string on the right")
