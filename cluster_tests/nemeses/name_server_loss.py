"""The NameServer is killed. Clients go by the routes they have, and hear of no new leader until it is back."""

from nemeses.nemesis import Group

from faults.nemesis import NemesisSpec, TargetKind
from mq.cluster_layout import NAMESRV


class NameServerLoss:
    spec = NemesisSpec(
        name="name_server_loss",
        targets=(TargetKind.OUTSIDE,),
        duration_ms=(2_000, 10_000),
        impairs=False,
        recovery_ms=12_000,  # brokers that heard nothing of its return register every 10 s
        outage_ms=None,  # of a leader that changes meanwhile nobody hears
    )

    def __init__(self, group: Group) -> None:
        self._group = group
        self._former: int | None = None
        self._next: int | None = None

    def begin(self, target: str) -> None:
        self._next = None
        self._former = self._group.pid(NAMESRV)
        self._group.kill(NAMESRV)

    def evidence(self) -> str | None:
        now = self._next or self._group.pid(NAMESRV)
        if self._former is None or now == self._former:
            return None
        return f"process {self._former} is gone" + (f", {now} is in its place" if now is not None else "")

    def end(self) -> None:
        if self._former is not None:
            self._group.start(NAMESRV)
            self._next = self._group.pid(NAMESRV)
