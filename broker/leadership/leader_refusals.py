"""A leader's refusals of what an operator asks, as responses."""

from broker.answers import AnyRequest
from dledger.core.refusal import Refusal, RefusalReason
from remoting.codes import ResponseCode

# Busy: to be asked again, here. For the others another member is to be asked, or an operator is needed: time alone
# brings back no member that is down, and upgrades none.
_CODES = {
    RefusalReason.LEADER_NOT_READY: ResponseCode.SYSTEM_BUSY,
    RefusalReason.LEADER_TRANSFERRING: ResponseCode.SYSTEM_BUSY,
    RefusalReason.CHANGE_IN_PROGRESS: ResponseCode.SYSTEM_BUSY,
    RefusalReason.NOT_CAUGHT_UP: ResponseCode.SYSTEM_BUSY,
    RefusalReason.NOT_FIT: ResponseCode.SYSTEM_BUSY,
    RefusalReason.NO_LIVE_MAJORITY: ResponseCode.ILLEGAL_OPERATION,
    RefusalReason.MEMBER_OUTDATED: ResponseCode.ILLEGAL_OPERATION,
    RefusalReason.NO_SUCH_MEMBER: ResponseCode.INVALID_PARAMETER,
    RefusalReason.MEMBERS_UNCHANGED: ResponseCode.INVALID_PARAMETER,
    RefusalReason.MEMBERS_TOO_LARGE: ResponseCode.INVALID_PARAMETER,
}

# Of a member that has no port for peers.
PLAIN_BROKER = (
    "this is a plain broker, no member of a group, so that there are no other members (enableDLegerCommitLog)"
)


def refuse(request: AnyRequest, refusal: Refusal) -> None:
    request.answer(_CODES.get(refusal.reason, ResponseCode.SERVICE_NOT_AVAILABLE), refusal.text)
