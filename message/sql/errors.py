"""What goes wrong with an expression while a message is looked at."""

from message.errors import MessageError


class EvaluationError(MessageError):
    """Java throws here: the message is not wanted."""
