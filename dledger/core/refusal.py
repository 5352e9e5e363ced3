"""What a leader answers when it does not do what is asked of it."""

from enum import Enum

import msgspec


class RefusalReason(Enum):
    """Definite: nothing was appended, nothing was begun, and nothing will be."""

    STOPPED = "STOPPED"
    NOT_LEADER = "NOT_LEADER"
    LEADER_NOT_READY = "LEADER_NOT_READY"  # own-term no-op not committed yet
    LEADER_TRANSFERRING = "LEADER_TRANSFERRING"
    # Of appends.
    LEADER_PENDING_FULL = "LEADER_PENDING_FULL"
    DISK_FULL = "DISK_FULL"
    # Of changes of the members.
    CHANGE_IN_PROGRESS = "CHANGE_IN_PROGRESS"  # one at a time
    MEMBERS_UNCHANGED = "MEMBERS_UNCHANGED"  # the change is none, or leaves nobody
    MEMBERS_TOO_LARGE = "MEMBERS_TOO_LARGE"  # to be said in one entry
    MEMBER_OUTDATED = "MEMBER_OUTDATED"  # a member would not see it; of reads: the leader cannot be asked
    NO_LIVE_MAJORITY = "NO_LIVE_MAJORITY"  # the voters that are left could commit nothing
    # Of a transfer of leadership to a member.
    NO_SUCH_MEMBER = "NO_SUCH_MEMBER"
    NOT_CAUGHT_UP = "NOT_CAUGHT_UP"  # of removals: some of the voters that are left, which are live
    NOT_FIT = "NOT_FIT"  # its disk is full or hangs
    # Of reads that must not be stale.
    LEADER_CHANGED = "LEADER_CHANGED"  # while it was asked
    NO_ANSWER = "NO_ANSWER"  # of a majority, or of the leader, within the limit


class Refusal(msgspec.Struct, frozen=True, gc=False):
    reason: RefusalReason
    text: str  # names cause, measured value and limit


HAS_STOPPED = Refusal(RefusalReason.STOPPED, "this member has stopped")
