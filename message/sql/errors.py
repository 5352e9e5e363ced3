"""What goes wrong with an expression while a message is looked at, and how parts of expressions are told."""

from message.errors import MessageError

SHOWN_MAX = 120  # characters


class EvaluationError(MessageError):
    """Java throws here: the message is not wanted."""


def shown(text: str) -> str:
    """In quotes, cut short: it goes into answers and logs."""
    return repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…")
