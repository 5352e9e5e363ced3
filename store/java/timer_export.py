"""What RocketMQ needs to go on with the timer messages that wait: timerwheel, timerlog and config/timercheck.

They are written at a clean stop and follow from the log alone, so the files of all members are alike. A timerlog has a
unit for each message that waits, and RocketMQ goes on reading the timer topic behind the message of its last unit. So
the last unit is that of the newest message, even if that waits no more; then it lies in a slot that is over.
"""

from collections import Counter
from typing import Final

from disk.disk import Disk
from message.decoder import raw_properties
from message.properties import pairs_of
from message.tags import java_hash
from store.derived.checkpoint_file import replace_file
from store.dledger_commit_log import store_timestamp_of
from store.errors import UnitDamagedError
from store.layout.config_json import BACKUP, data_version, render_config
from store.layout.timer_check_point import TIMER_CHECK, TIMER_CHECK_POINT
from store.layout.timer_wheel import (
    BLANK_MAGIC,
    FILE_END,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_UNIT,
    SLOT,
    TIMER_LOG,
    TIMER_WHEEL,
    UNIT,
    WHEEL_SIZE,
    slot_position,
)
from store.message_reader import MessageReader, is_head_of
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.services.timer_message import SLOT_MS_MAX, TIMER_TOPIC_BYTES, real_topic, recalled_key, wheel_slot
from store.state.tables.timer_table import TimerTable
from store.store_config import StoreConfig

TIMER_METRICS: Final = "timermetrics"
_CHECK_SIZE: Final = 4096
# Of one read of the queue.
_UNITS_MAX: Final = 1024


class _Unit:
    """Of the timerlog: a message that waits, or the newest one."""

    __slots__ = ("magic", "phy_offset", "size", "slot_ms", "topic", "write_ms")

    def __init__(self, phy_offset: int, record: bytes, window_ms: int) -> None:
        said = pairs_of(raw_properties(record))
        stored_ms = store_timestamp_of(record)
        self.phy_offset = phy_offset
        self.size = len(record)
        self.write_ms = stored_ms // SLOT_MS_MAX * SLOT_MS_MAX
        self.slot_ms, is_rolled_there = wheel_slot(said, stored_ms, window_ms)
        self.topic = real_topic(said).decode("utf-8", "replace")
        is_recall = recalled_key(said) is not None
        self.magic = MAGIC_DEFAULT | MAGIC_ROLL * is_rolled_there | MAGIC_DELETE * is_recall

    @property
    def count(self) -> int:
        """What it adds to the number of messages that wait."""
        return -1 if self.magic & MAGIC_DELETE else 1

    def pack(self, before: int) -> bytes:
        delay_ms, topic_hash = self.slot_ms - self.write_ms, java_hash(self.topic)
        return UNIT.pack(
            UNIT.size,
            before,
            self.magic,
            self.write_ms,
            delay_ms,
            self.phy_offset,
            self.size,
            topic_hash,
            0,
        )


class TimerExport:
    """Reads the log when it is made, which must be open; run() writes. Raises UnitDamagedError, MessageDamagedError,
    DiskError: then nothing can be handed over.
    """

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        queues: ConsumeQueueStore,
        reader: MessageReader,
        table: TimerTable,
    ) -> None:
        self._disk = disk
        self._config = config
        self._reader = reader
        self._table = table
        self._waiting: list[_Unit] = []
        self._newest: _Unit | None = None  # if it waits no more
        self._read_ms = self._queue_offset = 0
        queue = queues.find(TIMER_TOPIC_BYTES, 0)
        # As long as nobody has looked at what RocketMQ has left, that is still true.
        self._is_needed = queue is not None and not table.awaits_take_over
        if queue is not None and self._is_needed:
            self._collect(queue)

    def _collect(self, queue: UnitQueue) -> None:
        table, reader = self._table, self._reader
        end = self._queue_offset = queue.max_offset
        offset = table.next_waiting(queue.min_offset)
        while offset < end:
            units = queue.units(offset, _UNITS_MAX)
            if not units:
                offset = queue.first_offset_of_next_file(offset)
                continue
            for (phy_offset, size, _), at, behind in queue.parse(units, offset):
                offset = behind
                if table.is_ended(at) or reader.is_gone(queue, at, phy_offset):
                    continue
                self._waiting.append(self._unit(queue, at, phy_offset, size))
            offset = table.next_waiting(offset)
        last = queue.unit(end - 1) if end > queue.min_offset else None
        if last is None or reader.is_gone(queue, end - 1, last[0]):
            return
        newest = self._unit(queue, end - 1, last[0], last[1])
        # All that is due before has been delivered. It must not be after what RocketMQ's clock will say.
        slots = [unit.slot_ms for unit in self._waiting if not unit.magic & MAGIC_ROLL]
        self._read_ms = min([newest.write_ms, *slots])
        for unit in self._waiting:
            # RocketMQ would have rolled it by now. It has not been here, where it is due soon.
            unit.slot_ms = max(unit.slot_ms, self._read_ms)
        if not self._waiting or self._waiting[-1].phy_offset != newest.phy_offset:
            newest.slot_ms = self._read_ms - SLOT_MS_MAX
            self._newest = newest

    def _unit(self, queue: UnitQueue, offset: int, phy_offset: int, size: int) -> _Unit:
        record = self._reader.look_message_by_offset(phy_offset)
        if record is None or len(record) != size or not is_head_of(record, queue, offset):
            message = f"the queue of timer messages: unit {offset} leads to no record of it"
            raise UnitDamagedError(message, offset)
        return _Unit(phy_offset, record, self._config.timer_roll_window_ms)

    def run(self) -> None:
        """Blocks. Raises DiskError. After a crash meanwhile there is no timercheck: RocketMQ reads the whole timer
        topic.
        """
        if not self._is_needed:
            return
        remove_timer_files(self._disk, self._config)
        units, slots = self._packed()
        self._write_log(units)
        self._write_wheel(slots)
        directory = f"{self._config.store_path_root_dir}/config"
        self._disk.make_directory(directory)
        version = self._table.data_version
        counts = Counter[str]()
        for unit in self._waiting:
            counts[unit.topic] += unit.count
        timing = {topic: {"count": count, "timeStamp": version.timestamp} for topic, count in counts.items()}
        metrics = {"dataVersion": data_version(version.counter, version.timestamp), "timingCount": timing}
        replace_file(self._disk, f"{directory}/{TIMER_METRICS}", render_config(metrics).encode())
        # From the first unit on, RocketMQ looks at all of them at its start.
        values = (self._read_ms, 0, self._queue_offset, self._queue_offset, 0, 0, 0)
        content = TIMER_CHECK_POINT.pack(*values).ljust(_CHECK_SIZE, b"\0")
        replace_file(self._disk, f"{directory}/{TIMER_CHECK}", content)

    def _packed(self) -> tuple[list[bytes], dict[int, tuple[int, int, int]]]:
        """The units, and (first unit, last unit, messages) by the time of the slot."""
        units: list[bytes] = []
        slots: dict[int, tuple[int, int, int]] = {}
        for unit in self._waiting:
            position = self._position_of(len(units))
            first, last, count = slots.get(unit.slot_ms, (position, NO_UNIT, 0))
            units.append(unit.pack(last))
            slots[unit.slot_ms] = first, position, count + unit.count
        if self._newest is not None and units:
            units.append(self._newest.pack(NO_UNIT))
        return units, slots

    @property
    def _units_per_file(self) -> int:
        return (self._config.mapped_file_size_timer_log - FILE_END.size) // UNIT.size

    def _position_of(self, number: int) -> int:
        """Of a unit in the timerlog."""
        file_number, number = divmod(number, self._units_per_file)
        return file_number * self._config.mapped_file_size_timer_log + number * UNIT.size

    def _write_log(self, units: list[bytes]) -> None:
        directory = f"{self._config.store_path_root_dir}/{TIMER_LOG}"
        self._disk.make_directory(directory)
        size, count = self._config.mapped_file_size_timer_log, self._units_per_file
        for begin in range(0, len(units), count):
            content = b"".join(units[begin : begin + count])
            if begin + count < len(units):
                content += FILE_END.pack(size - len(content), 0, BLANK_MAGIC)
            self._write(f"{directory}/{self._position_of(begin):020d}", size, {0: content})
        self._disk.sync_directory(directory)

    def _write_wheel(self, slots: dict[int, tuple[int, int, int]]) -> None:
        precision_ms, root = self._config.timer_precision_ms, self._config.store_path_root_dir
        parts = {
            slot_position(slot_ms, precision_ms): SLOT.pack(slot_ms // precision_ms, *slot, 0)
            for slot_ms, slot in sorted(slots.items())
        }
        self._write(f"{root}/{TIMER_WHEEL}", WHEEL_SIZE, parts)
        self._disk.sync_directory(root)

    def _write(self, path: str, size: int, parts: dict[int, bytes]) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.truncate(size)
            for position, part in parts.items():
                file.pwrite(part, position)
            file.fdatasync()
        finally:
            file.close()


def remove_timer_files(disk: Disk, config: StoreConfig) -> None:
    """timercheck first: without it RocketMQ believes none of the others. Raises DiskError."""
    root = config.store_path_root_dir
    directory = f"{root}/config"
    for name in (TIMER_CHECK, TIMER_METRICS, TIMER_METRICS + BACKUP):
        if disk.exists(f"{directory}/{name}"):
            disk.unlink(f"{directory}/{name}")
    if disk.is_directory(directory):
        disk.sync_directory(directory)
    for name in disk.list_directory(f"{root}/{TIMER_LOG}"):
        disk.unlink(f"{root}/{TIMER_LOG}/{name}")
    for name in disk.list_directory(root):
        # RocketMQ 5.5 may keep earlier ones beside it, as timerwheel.<position>.
        if name.partition(".")[0] == TIMER_WHEEL:
            disk.unlink(f"{root}/{name}")
