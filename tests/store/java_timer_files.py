"""RocketMQ's timer files, read as its broker reads them at a start and then turns its wheel."""

from dataclasses import dataclass
from pathlib import Path

from store.layout.timer_check_point import TIMER_CHECK_POINT
from store.layout.timer_wheel import BLANK_MAGIC, FILE_END, SLOT, UNIT, WHEEL_SIZE, slot_position


@dataclass(frozen=True)
class Waiting:
    slot_ms: int
    phy_offset: int
    magic: int


@dataclass(frozen=True)
class TimerFiles:
    read_ms: int
    queue_offset: int
    last_phy_offset: (
        int  # of the last unit, behind whose message RocketMQ goes on in the timer topic; -1 for none
    )
    waiting: list[Waiting]  # in the order in which they are read
    counts: dict[int, int]  # by slot


def read_timer_files(root: Path, precision_ms: int = 1000) -> TimerFiles:
    check = (root / "config" / "timercheck").read_bytes()
    assert len(check) == 4096
    read_ms, _, queue_offset, master_offset, *_ = TIMER_CHECK_POINT.unpack_from(check)
    assert queue_offset <= master_offset
    units = {}
    for path in sorted((root / "timerlog").iterdir()):
        content = path.read_bytes()
        for position in range(0, len(content) - FILE_END.size + 1, UNIT.size):
            unit = UNIT.unpack_from(content, position) if position + UNIT.size <= len(content) else ()
            if FILE_END.unpack_from(content, position)[2] == BLANK_MAGIC or unit[0] != UNIT.size:
                break
            units[int(path.name) + position] = unit
    wheel = (root / "timerwheel").read_bytes()
    assert len(wheel) == WHEEL_SIZE
    slots = {
        time * precision_ms: (first, last, count)
        for time, first, last, count, _ in SLOT.iter_unpack(wheel)
        if time * precision_ms >= read_ms
    }
    waiting = []
    for slot_ms in sorted(slots):
        assert SLOT.unpack_from(wheel, slot_position(slot_ms, precision_ms))[0] == slot_ms // precision_ms
        first, position, _ = slots[slot_ms]
        chain = []
        while position != -1:
            _, before, magic, write_ms, delay_ms, phy_offset, *_ = units[position]
            assert write_ms + delay_ms == slot_ms
            chain.append(Waiting(slot_ms, phy_offset, magic))
            assert before != -1 or position == first
            position = before
        waiting += reversed(chain)
    last_phy_offset = units[max(units)][5] if units else -1
    return TimerFiles(
        read_ms, queue_offset, last_phy_offset, waiting, {slot_ms: slot[2] for slot_ms, slot in slots.items()}
    )
