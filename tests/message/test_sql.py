"""SQL92 filter expressions beyond the recorded cases: limits, numbers as Java reads them, what is left unread."""

import re
import subprocess
import sys

import pytest

from message.errors import SubscriptionParseError
from message.sql.errors import EvaluationError
from message.sql.java_numbers import read_double, read_integer, read_long
from message.sql.parser import DEPTH_MAX, TERMS_MAX, parse, unread_warning
from message.tags import EXPRESSION_LENGTH_MAX


def truth(expression: str, **properties: str) -> bool | None:
    named = {name.encode(): value for name, value in properties.items()}
    return parse(expression).truth(named.get)


@pytest.mark.parametrize(
    ("expression", "unread"),
    [
        ("a = 1", ""),
        ("a = 1 b = 2", "b = 2"),
        ("a LIKE 'x%'", "LIKE 'x%'"),
        ("a = 1) OR b = 2", ") OR b = 2"),
        ("a = 1 -- to the end", "-- to the end"),
        ("a = 1 -- to the end of the line\n", ""),
    ],
)
def test_what_stands_behind_the_longest_expression_is_left_unread_and_told(
    expression: str, unread: str
) -> None:
    assert parse(expression).unread == unread
    assert (unread_warning(expression) or "").count(repr(unread)) == (1 if unread else 0)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a == 1", "column 4: a property, a number, a string or ( is needed, and '=' is there"),
        ("a != 1", "column 3: '!' is no part of an expression"),
        ("(a = 1", "column 7: ) is needed, and the end is there"),
        ("a IN (1)", "column 7: a string in single quotes is needed, and '1' is there"),
        ("a = 1 IN ('x')", "IN needs a property on its left, and this is a number"),
        ("a > 'x'", "> compares numbers, and this is a string"),
        ("a = NULL", "NULL cannot be compared: write IS NULL"),
        ("a BETWEEN 5 AND 1", "BETWEEN 5 AND 1: the first is above the second"),
        ("5", "a truth value is needed, and this is a number"),
        ("a = " + "9" * 5000, "is above 9223372036854775807"),
        ("a = 0.0", "'0.0' is no number of 4.9E-324 to 1.79"),
    ],
)
def test_an_expression_that_is_refused_says_where_or_why(expression: str, reason: str) -> None:
    with pytest.raises(SubscriptionParseError, match=re.escape(reason)):
        parse(expression)


def test_length_depth_and_terms_have_limits() -> None:
    tags = ", ".join(f"'{number:08}'" for number in range(EXPRESSION_LENGTH_MAX // 13))
    assert truth(f"a IN ({tags})", a="00000007") is True, "a long list is one term"
    with pytest.raises(SubscriptionParseError, match=f"the limit is {EXPRESSION_LENGTH_MAX}"):
        parse(f"a = '{'x' * EXPRESSION_LENGTH_MAX}'")
    for begin, end in (("(", ")"), ("NOT ", ""), ("NOT (", ")")):
        depth = DEPTH_MAX // (2 if begin == "NOT (" else 1)
        parse(begin * depth + "a = 1" + end * depth)
        with pytest.raises(SubscriptionParseError, match=f"more than {DEPTH_MAX} levels deep"):
            parse(begin * (depth + 1) + "a = 1" + end * (depth + 1))
    for join in (" OR a = 1", " AND a = 1", " = TRUE", " IS NOT NULL"):
        assert truth("a = 1" + join * (TERMS_MAX - 1), a="1") is True
        with pytest.raises(SubscriptionParseError, match=f"more than {TERMS_MAX} comparisons"):
            parse("a = 1" + join * TERMS_MAX)


def test_an_error_counts_where_it_is_reached() -> None:
    assert truth("b = 1 OR a > 5", a="abc", b="1") is True
    assert truth("b = 1 AND a > 5", a="abc", b="2") is False
    with pytest.raises(EvaluationError, match="'abc' is no Integer"):
        truth("a > 5 OR b = 1", a="abc", b="1")
    with pytest.raises(EvaluationError, match="a truth value on the left"):
        truth("TRUE = t", t="true")


def test_two_properties_compare_as_doubles() -> None:
    assert truth("a < b", a="9", b="10") is True
    assert truth("a < b", a="-0.0", b="0") is True
    assert truth("a > b", a="NaN", b="Infinity") is True
    assert truth("a = b", a="1", b="1.0") is False, "equal are texts alone"


@pytest.mark.parametrize(
    ("text", "value"),
    [("+7", 7), ("-2147483648", -(2**31)), ("007", 7), ("\u0663", 3)],
)
def test_integers_are_read_as_java_does(text: str, value: int) -> None:
    assert read_integer(text) == read_long(text) == value


@pytest.mark.parametrize(
    "text", ["", "+", " 7", "1_0", "7L", "2147483648", "1.0", "0x10", "\U0001d7d7", "9" * 5000]
)
def test_what_is_no_integer_in_java_is_none(text: str) -> None:
    with pytest.raises(EvaluationError):
        read_integer(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [(" 1.5\t", 1.5), ("1d", 1.0), (".5F", 0.5), ("5.", 5.0), ("0x1.8p1", 3.0), ("-Infinity", float("-inf")),
     ("1e400", float("inf")), ("-0x1p2000", float("-inf"))],
)  # fmt: skip
def test_doubles_are_read_as_java_does(text: str, value: float) -> None:
    assert read_double(text) == value


@pytest.mark.parametrize("text", ["", "nan", "infinity", "1_0", "0x10", "1e", "1L", "\u0663", "NaNf"])
def test_what_is_no_double_in_java_is_none(text: str) -> None:
    with pytest.raises(EvaluationError):
        read_double(text)


def test_filters_are_loaded_with_the_first_such_subscription() -> None:
    code = (
        "import sys, broker.server, mqclient; loaded = {*sys.modules};"
        "print(sorted(name for name in loaded if 'sql' in name.split('.')[-1] or '.sql.' in name))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[]\n"


def test_a_long_part_is_cut_short_where_it_is_told() -> None:
    with pytest.raises(SubscriptionParseError, match="…' is above") as error:
        parse("a = " + "9" * 10_000)
    assert len(str(error.value)) < 300
    assert len(unread_warning("a = 1 b" + " c" * 5000) or "") < 400
