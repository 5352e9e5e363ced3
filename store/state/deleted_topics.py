"""Where in the log topics were deleted: what lies before that is no message of the topic that has the name now."""

from typing import Any


class DeletedTopics:
    """Topic -> position of the entry that deleted it last.

    Invariant: a function of the applied entries that the log still has. An entry that is gone needs no mention, for the
    messages before it are gone, too.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def add(self, topic: str, pos: int) -> None:
        self._positions[topic] = pos

    def __contains__(self, topic: object) -> bool:
        return topic in self._positions

    def begin_of(self, topic: str) -> int:
        """Records of the topic at a smaller physical offset are not its own any more."""
        return self._positions.get(topic, 0)

    def forget_before(self, begin_pos: int) -> None:
        """The log begins there now."""
        if any(pos < begin_pos for pos in self._positions.values()):
            self._positions = {topic: pos for topic, pos in self._positions.items() if pos >= begin_pos}

    def clear(self) -> None:
        self._positions.clear()

    def pack(self) -> list[Any]:
        """For a checkpoint."""
        return list(self._positions.items())

    def unpack(self, values: list[Any]) -> None:
        self._positions = dict(values)
