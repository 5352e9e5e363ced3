"""The group that a replica belongs to: read from its disk, or formed at the first start, and stored before it counts.

What is to be concluded from what peers show is formation.py's.
"""

import logging
from collections.abc import Collection

from dledger.config import DLedgerConfig
from dledger.core.messages import PeerId
from dledger.errors import HandshakeRefusedError
from dledger.formation import Formation, Formed, GroupIdentity
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.run_record import begin_run, store_formed

log = logging.getLogger(__name__)


class GroupFormation:
    """Invariant: once there is a group, it stays that one."""

    def __init__(
        self,
        config: DLedgerConfig,
        quorum_state: QuorumState,
        log_store: LogStore,
        disk_uuid: bytes,
        boot_id: str,
    ) -> None:
        """Blocks on a sync. `disk_uuid` is taken if this disk has none yet. Raises DLedgerConfigError, DiskError."""
        self._self_id = config.self_id
        self._quorum_state = quorum_state
        self._log = log_store
        self.identity = begin_run(config, quorum_state, log_store, disk_uuid, boot_id)
        self._formation: Formation | None = None
        self.is_formed = self.identity.group_uuid is not None
        if self.identity.group_uuid is None:
            self._formation = Formation(
                config.self_id, config.peers, self.identity.disk_uuid, begin_pos=self.begin_pos
            )
            self._form(self._formation.start())

    @property
    def group(self) -> GroupIdentity | None:
        """None as long as the group is not formed: then this member neither votes nor follows."""
        identity = self.identity
        if identity.group_uuid is None:
            return None
        return GroupIdentity(identity.group_uuid, identity.pairs)

    @property
    def waits_for(self) -> list[PeerId]:
        """Peers that are to be seen before the group can be formed."""
        return self._formation.missing if self._formation is not None else []

    @property
    def begin_pos(self) -> int:
        """Of the first entry in the log, -1 if there never was one: as peers are told."""
        return self._log.ledger_begin_pos if self._log.ledger_end_index >= 0 else -1

    def peer_seen(
        self,
        peer: PeerId,
        disk_uuid: bytes,
        group: GroupIdentity | None,
        *,
        begin_pos: int,
        peers: Collection[PeerId] = (),
    ) -> bool:
        """Whether the group has been formed by it. Raises HandshakeRefusedError if what the peer says cannot be, and
        DiskError.
        """
        if self._formation is not None:
            seen = self._formation.peer_seen(peer, disk_uuid, group, begin_pos=begin_pos, peers=peers)
            return self._form(seen)
        if group is not None and group != self.group:
            raise HandshakeRefusedError(f"{peer!r} was formed into another group meanwhile")
        return False

    def peer_lost(self, peer: PeerId) -> None:
        if self._formation is not None:
            self._formation.peer_lost(peer)

    def _form(self, formed: Formed | None) -> bool:
        if formed is None:
            return False
        self.identity = store_formed(self._quorum_state, formed)
        self._formation = None
        self.is_formed = True
        uuid = formed.group.group_uuid.hex()
        log.info("[%s] group formed uuid=%s", self._self_id, uuid)
        if formed.doubted:
            log.warning(
                "[%s] doubted from here on, its vote alone makes no majority reason=its disk is not the one that the "
                "group was formed with, or is empty where others have a log",
                self._self_id,
            )
        return True
