"""What goes wrong in the store, as classes that a caller can act on."""


class StoreError(Exception):
    """Base of this package's errors."""


class StoreDamagedError(StoreError):
    """Committed data says what it cannot say. The member must not go on: its tables would part from its peers'."""


class MessageDamagedError(StoreError):
    """A message is damaged on this member's disk, and is being repaired from a peer. Nothing else is wrong."""


class UnitDamagedError(StoreError):
    """A unit of a ConsumeQueue on this member's disk leads nowhere, and is being written anew from the log."""

    def __init__(self, text: str, queue_offset: int) -> None:
        super().__init__(text)
        self.queue_offset = queue_offset


class StateRecordError(StoreError):
    """A state record that this version cannot read. Written by a newer one, or damaged."""


class StoreConfigError(StoreError):
    """A setting is out of its range; the text names it and what is allowed."""


class ConfigFilesDamagedError(StoreError):
    """Tables under config/ that are the only ones there are cannot be read; the text says what to do."""
