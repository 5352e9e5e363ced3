"""What can be wrong with a message, as exceptions."""


class MessageError(ValueError):
    """Base of this package's errors."""


class MessageDecodeError(MessageError):
    """Bytes that are no sound message."""


class MessageEncodeError(MessageError):
    """Values that have no encoding: one of them is longer than its length field can say."""


class SubscriptionParseError(MessageError):
    """A filter expression that cannot be read."""
