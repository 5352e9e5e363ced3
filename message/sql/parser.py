"""SQL92 filter expressions: the grammar of RocketMQ's broker.

It reads the longest expression that there is, and leaves what follows unread, as RocketMQ does. Loosest first:

    or          = and {OR and}
    and         = equality {AND equality}
    equality    = comparison {= comparison | <> comparison | IS [NOT] NULL}
    comparison  = unary {(> | >= | < | <=) unary | [NOT] BETWEEN unary AND unary
                         | [NOT] IN ( string {, string} ) | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string}
    unary       = (+ | - | NOT) unary | primary
    primary     = string | number | TRUE | FALSE | NULL | property | ( or )
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

import msgspec

from message.errors import SubscriptionParseError
from message.sql import conditions
from message.sql.conditions import ORDERINGS, STRING_TESTS, Kind, Operand, Properties, Truth, truth_of
from message.sql.errors import shown
from message.sql.java_numbers import INTEGER_MAX, LONG_MAX, NumberType
from message.sql.lexer import END, Lexer
from message.tags import check_length

# RocketMQ has no limits. A broker that is not to stand still for one expression has, and one for its length too.
DEPTH_MAX = 64  # of parentheses and signs within each other
TERMS_MAX = 256  # comparisons and the like

_BOOLEANS = {"TRUE": True, "FALSE": False, "NULL": None}


class SqlExpression(msgspec.Struct, frozen=True):
    """`unread`: what stands behind the longest expression, and counts for nothing."""

    truth: Truth
    unread: str

    def matches(self, properties: Properties) -> bool:
        """Whether the message is wanted. Raises EvaluationError: it is not."""
        return self.truth(properties) is True


@lru_cache(maxsize=16)
def parse(expression: str) -> SqlExpression:
    """Raises SubscriptionParseError."""
    check_length(expression)
    return _Parser(expression).parse()


def unread_warning(expression: str) -> str | None:
    """What to tell of an expression that has been parsed, if not all of it counts."""
    unread = parse(expression).unread
    if not unread:
        return None
    return f"of the SQL92 expression {shown(expression)} only the part in front of {shown(unread)} counts"


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._lexer = Lexer(expression)
        self._depth = 0
        self._term_count = 0

    def parse(self) -> SqlExpression:
        truth = truth_of(self._or())
        return SqlExpression(truth, self._expression[self._lexer.peek().position :])

    def _or(self) -> Operand:
        return self._chain("OR", self._and, conditions.any_of)

    def _and(self) -> Operand:
        return self._chain("AND", self._equality, conditions.all_of)

    def _chain(self, word: str, part: Callable[[], Operand], join: Callable[[list[Truth]], Truth]) -> Operand:
        first = part()
        if not self._is_next(word):
            return first
        truths = [truth_of(first)]
        while self._takes(word):
            truths.append(truth_of(part()))
        return conditions.boolean(join(truths))

    def _equality(self) -> Operand:
        left = self._comparison()
        while True:
            if self._takes("="):
                truth = conditions.equal(left, self._comparison())
            elif self._takes("<>"):
                truth = conditions.is_not(conditions.equal(left, self._comparison()))
            elif self._takes("IS"):
                is_negated = self._takes("NOT")
                self._need("NULL")
                truth = conditions.is_null(left)
                if is_negated:
                    truth = conditions.is_not(truth)
            else:
                return left
            left = self._term(truth)

    def _comparison(self) -> Operand:
        left = self._unary()
        while (truth := self._compared(left)) is not None:
            left = self._term(truth)
        return left

    def _compared(self, left: Operand) -> Truth | None:
        """`left` with the comparison that follows it, None where none does."""
        sign = self._lexer.peek().kind
        if sign in ORDERINGS:
            self._lexer.take()
            return conditions.ordered(left, sign, self._unary())
        is_negated = self._takes("NOT")
        word = self._lexer.peek().kind
        if word in STRING_TESTS:
            self._lexer.take()
            return conditions.has_part(left, word, self._string(), is_negated=is_negated)
        if self._takes("BETWEEN"):
            low = self._unary()
            self._need("AND")
            high = self._unary()
            return (conditions.not_between if is_negated else conditions.between)(left, low, high)
        if self._takes("IN"):
            return conditions.is_in(left, self._strings(), is_negated=is_negated)
        if is_negated:
            self._fail("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        return None

    def _unary(self) -> Operand:
        if self._takes("+"):
            return self._deeper(self._unary)
        if self._takes("-"):
            return conditions.negated(self._deeper(self._unary))
        if self._takes("NOT"):
            return conditions.boolean(conditions.is_not(truth_of(self._deeper(self._unary))))
        return self._primary()

    def _primary(self) -> Operand:
        kind, text, _ = self._lexer.peek()
        match kind:
            case "string":
                return conditions.literal(Kind.STRING, self._string())
            case "(":
                self._lexer.take()
                inner = self._deeper(self._or)
                self._need(")")
                return inner
            case "integer" | "float" | "name" | "TRUE" | "FALSE" | "NULL":
                self._lexer.take()
            case _:
                self._fail("a property, a number, a string or (")
        if kind == "integer":
            return _integer(text)
        if kind == "float":
            return _float(text)
        if kind == "name":
            return conditions.property_named(text)
        return conditions.literal(Kind.BOOLEAN, _BOOLEANS[kind])

    def _strings(self) -> frozenset[str]:
        self._need("(")
        texts = [self._string()]
        while self._takes(","):
            texts.append(self._string())
        self._need(")")
        return frozenset(texts)

    def _string(self) -> str:
        return self._need("string")[1:-1].replace("''", "'")

    def _deeper(self, part: Callable[[], Operand]) -> Operand:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SubscriptionParseError(f"the expression is more than {DEPTH_MAX} levels deep")
        operand = part()
        self._depth -= 1
        return operand

    def _term(self, truth: Truth) -> Operand:
        self._term_count += 1
        if self._term_count > TERMS_MAX:
            raise SubscriptionParseError(f"the expression has more than {TERMS_MAX} comparisons")
        return conditions.boolean(truth)

    def _is_next(self, kind: str) -> bool:
        return self._lexer.peek().kind == kind

    def _takes(self, kind: str) -> bool:
        """Takes the next token if it is of this kind."""
        if not self._is_next(kind):
            return False
        self._lexer.take()
        return True

    def _need(self, kind: str) -> str:
        if not self._is_next(kind):
            self._fail("a string in single quotes" if kind == "string" else kind)
        return self._lexer.take().text

    def _fail(self, wanted: str) -> NoReturn:
        kind, text, position = self._lexer.peek()
        found = END if kind == END else shown(text)
        raise SubscriptionParseError(f"column {position + 1}: {wanted} is needed, and {found} is there")


def _integer(text: str) -> Operand:
    digits = text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or (value := int(digits)) > LONG_MAX:
        raise SubscriptionParseError(f"{shown(text)} is above {LONG_MAX}")
    return conditions.number_of(value, NumberType.INTEGER if value <= INTEGER_MAX else NumberType.LONG)


def _float(text: str) -> Operand:
    value = float(text)
    if value in (0.0, math.inf):
        raise SubscriptionParseError(f"{shown(text)} is no number of 4.9E-324 to 1.7976931348623157E308")
    return conditions.number_of(value, NumberType.DOUBLE)
