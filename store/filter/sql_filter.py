"""Filters by SQL92 expressions over the properties of a message."""

from __future__ import annotations

import logging
from functools import lru_cache, partial

from message.decoder import raw_properties
from message.errors import SubscriptionParseError
from message.properties import find_property
from message.sql.errors import EvaluationError
from message.sql.parser import SqlExpression, parse, unread_warning

log = logging.getLogger(__name__)


class SqlFilter:
    """The unit says nothing of properties, so every record is read."""

    def __init__(self, text: str, expression: SqlExpression) -> None:
        self._text = text
        self._expression = expression
        self._has_told = False

    def by_unit(self, tags_code: int, /) -> bool:
        return True

    def by_record(self, record: bytes) -> bool:
        try:
            return self._expression.matches(partial(_property, raw_properties(record)))
        except EvaluationError as error:
            if not self._has_told:
                self._has_told = True
                log.warning("message not wanted, its filter fails filter=%.200r reason=%s", self._text, error)
            return False


def sql_filter(expression: str) -> SqlFilter:
    """Raises SubscriptionParseError."""
    compiled = _compiled(expression)
    if isinstance(compiled, str):
        raise SubscriptionParseError(compiled)
    return compiled


@lru_cache(maxsize=256)  # the largest has some 200 KB
def _compiled(expression: str) -> SqlFilter | str:
    """The filter, or why there is none. What is to be said of an expression is logged once."""
    try:
        parsed = parse(expression)
    except SubscriptionParseError as error:
        log.warning("filter refused filter=%.200r reason=%s", expression, error)
        return str(error)
    if (warning := unread_warning(expression)) is not None:
        log.warning("%s", warning)
    return SqlFilter(expression, parsed)


def _property(properties: bytes, name: bytes) -> str | None:
    value = find_property(properties, name)
    return None if value is None else value.decode("utf-8", "replace")
