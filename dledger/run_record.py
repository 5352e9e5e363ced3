"""What a member writes down about itself at the start and the end of a run: its disk, its boot, its doubt.

Blocking, and done before the member speaks or after it has fallen silent; so it is no job.
"""

import errno
import logging

from msgspec.structs import replace

from disk.disk import NoSpaceError
from dledger.config import DLedgerConfig, FlushMode
from dledger.errors import DLedgerConfigError
from dledger.formation import Formed
from dledger.log.java_files import curr_term_job
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import MemberIdentity, QuorumState

log = logging.getLogger(__name__)


def begin_run(
    config: DLedgerConfig, quorum_state: QuorumState, log_store: LogStore, disk_uuid: bytes, boot_id: str
) -> MemberIdentity:
    """`disk_uuid` is taken if this disk has none yet, and is durable on return. `boot_id` changes with each
    boot of the host; empty if that cannot be told.

    Raises DLedgerConfigError when the store was made with other data files.
    """
    identity = quorum_state.identity
    if identity is None:
        identity = MemberIdentity(disk_uuid, config.data_file_size)
    if identity.data_file_size != config.data_file_size:
        raise DLedgerConfigError(
            f"{config.directory} has data files of {identity.data_file_size} bytes, mapedFileSizeCommitLog says "
            f"{config.data_file_size}; the group keeps the size it was made with"
        )
    # What was acknowledged from the page cache outlives the process, not the host's power. It is the mode of the last
    # run that counts: what that one left unsynced and the host kept, the log has synced as it was opened.
    from_page_cache = config.flush_mode is FlushMode.ASYNC_FLUSH
    has_lost_power = identity.boot_id not in ("", boot_id) and not identity.stopped_cleanly
    acknowledged_so = from_page_cache if identity.from_page_cache is None else identity.from_page_cache
    lost_power = acknowledged_so and has_lost_power
    hard_state = quorum_state.hard_state
    doubt = None
    if log_store.doubted:
        doubt = "entries above the synced mark may be lost, or the mark is"
    elif lost_power:
        doubt = "the host lost what was in its page cache: it has booted since it ran under ASYNC_FLUSH"
    elif log_store.ends_in_damage and not identity.stopped_cleanly:
        doubt = "the last entry is damaged, and what was acknowledged behind it may be lost with it"
    if doubt is not None and not hard_state.doubted:
        log.warning(
            "[%s] doubted from here on, its vote alone makes no majority reason=%s", config.self_id, doubt
        )
        quorum_state.store_job(replace(hard_state, sequence=hard_state.sequence + 1, doubted=True))
    identity = replace(
        identity,
        boot_id=boot_id,
        stopped_cleanly=False,
        from_page_cache=from_page_cache,
    )
    # Each job holds all changes before it: this one writes the doubt as well.
    quorum_state.store_identity_job(identity).run()
    log_store.doubt_saved()
    return identity


def store_formed(quorum_state: QuorumState, formed: Formed) -> MemberIdentity:
    """Durable on return, and so before the member's first vote."""
    identity = quorum_state.identity
    assert identity is not None, "a run has begun"
    hard_state = quorum_state.hard_state
    if formed.doubted and not hard_state.doubted:
        quorum_state.store_job(replace(hard_state, sequence=hard_state.sequence + 1, doubted=True))
    identity = replace(identity, group_uuid=formed.group.group_uuid, pairs=formed.group.pairs)
    quorum_state.store_identity_job(identity).run()
    return identity


def end_run(directory: str, quorum_state: QuorumState, log_store: LogStore) -> None:
    """After the last sync of a clean stop. Raises NoSpaceError: then the next start takes this one for killed."""
    try:
        curr_term_job(log_store.disk, directory, quorum_state.hard_state.curr_term).run()
    except NoSpaceError as error:
        log.warning("currterm not exported directory=%s error=%s", directory, error)
    if not log_store.is_marked:
        raise NoSpaceError(errno.ENOSPC, "no space for the synced mark", directory)
    identity = quorum_state.identity
    assert identity is not None, "a run has begun"
    quorum_state.store_identity_job(replace(identity, stopped_cleanly=True)).run()
