"""How the member of the group is, as keys of the runtime information that mqadmin's brokerStatus shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MemberStatus = Callable[[], Mapping[str, Any]]  # as /status shows it; empty where there is none


def member_info(status: Mapping[str, Any]) -> dict[str, str]:
    """Of the member of the group: what an operator asks for first. What is as it should be has no line."""
    if not status:
        return {}
    faulty = (f"{entries['first_index']}..{entries['last_index']}" for entries in status["faulty_ranges"])
    troubles = {
        "doubted": "true" if status["doubted"] else "",
        "cannotVote": "" if status["can_vote"] else "true",
        "diskObstacle": status["disk_obstacle"] or "",
        "electionObstacle": status["election_obstacle"] or "",
        "faultyEntries": " ".join(faulty),
        "learners": " ".join(status["learners"]),
        "waitsFor": " ".join(status["waits_for"]),
    }
    return {
        "committedIndex": str(status["committed"]),
        "durableIndex": str(status["synced"]),
        "leaderId": status["leader"] or "none",
        "ledgerBeginIndex": str(status["ledger_begin"]),
        "ledgerEndIndex": str(status["ledger_end"]),
        "memberId": status["id"],
        "voters": " ".join(status["voters"]),
        **{name: trouble for name, trouble in troubles.items() if trouble},
    }
