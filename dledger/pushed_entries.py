"""The raw bytes of an APPEND, proven to be the entries that it announces."""

from dledger.core.messages import PushRequest
from dledger.entry import EntryCorruptError, VerifiedRange, verify_entries


class PushNotSoundError(Exception):
    """What was pushed is not what it says it is; the text tells the difference."""


def verify_pushed(message: PushRequest, payload: bytes) -> VerifiedRange:
    """Raises PushNotSoundError."""
    entries = message.entries
    assert entries is not None, "an APPEND has entries"
    try:
        verified = verify_entries(
            payload,
            first_index=entries.first_index,
            first_pos=entries.pos,
            prev_chain=message.previous_chain,
            prev_term=message.previous_term,
        )
    except EntryCorruptError as error:
        raise PushNotSoundError(f"pushed entries are not sound: {error}") from error
    seen = (verified.last_index, verified.last_term, verified.chain)
    if seen != (entries.last_index, entries.last_term, entries.last_chain):
        raise PushNotSoundError(f"pushed entries end at {seen}, announced was {entries}")
    return verified
