"""Tokens of SQL92 filter expressions, one at a time.

The parser looks one token ahead. What lies behind the last token that it looks at is never read, so it may be anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from message.errors import SubscriptionParseError

# In any case of letters.
_KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
# A comment of one line ends with its line: without an end, `--` is two signs.
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*")
_TOKEN = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)"
    r"|(?P<string>'(?:''|[^'])*')"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])"
)
END = "the end"


class Token(NamedTuple):
    """`kind`: float, integer, name, string; of a keyword or sign itself, a keyword in capitals; or END."""

    kind: str
    text: str
    position: int  # of its first character


class Lexer:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._position = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next token, which stays the next. Raises SubscriptionParseError where no token begins."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """The next token. Raises SubscriptionParseError."""
        token = self.peek()
        self._next = None
        return token

    def _read(self) -> Token:
        expression = self._expression
        skipped = _SKIPPED.match(expression, self._position)
        assert skipped is not None, "it matches nothing, too"
        start = skipped.end()
        if start == len(expression):
            return Token(END, "", start)
        match = _TOKEN.match(expression, start)
        if match is None:
            raise SubscriptionParseError(
                f"column {start + 1}: {expression[start]!r} is no part of an expression"
            )
        self._position = match.end()
        kind, text = match.lastgroup or "", match.group()
        if kind == "sign":
            kind = text
        elif kind == "name" and text.upper() in _KEYWORDS:
            kind = text.upper()
        return Token(kind, text, start)
