"""The secrets by which members know each other. They can be replaced while the group serves.

A member proves that it knows the first one, and believes a peer that proves any of them. So a new secret is brought in
by three changes, each at all members before the next one begins: old and new; new and old; new alone. Members with
the change and members without it can speak to each other all the time.
"""

import logging
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)


class ClusterSecrets:
    """Invariant: there is one at least; it may be empty, where all members are on one machine."""

    def __init__(self, read: Callable[[], Sequence[bytes]]) -> None:
        """Read them. Raises what `read` raises."""
        self._read = read
        self._known = tuple(read())
        assert self._known, "one at least"

    @property
    def are_empty(self) -> bool:
        return not any(self._known)

    def read_again(self) -> tuple[bytes, ...]:
        """All of them, as they are now, the one to be proved first. Where they cannot be read, the former ones stay."""
        try:
            found = tuple(self._read())
        except ValueError as error:
            log.warning("the cluster secrets stay as they were: %s", error)
            return self._known
        if found != self._known:
            self._known = found
            log.info("cluster secrets read again accepted=%d", len(found))
        return self._known


def fixed_secret(secret: bytes) -> ClusterSecrets:
    """One that stays as it is."""
    return ClusterSecrets(lambda: (secret,))


NO_CLUSTER_SECRET = fixed_secret(b"")
