"""All ConsumeQueues of a store: found by topic and queue id, restored at start, flushed by jobs.

What is restored comes from the newest checkpoint (checkpoint_file.py): the minimum and maximum offset of every
queue at one applied index. Files that do not bear it out mean that all queues are rebuilt from the log.
"""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping

from disk.mapped_file import DescriptorCache
from disk.mapped_file_queue import MappedFileQueueError
from store.dispatch_request import DispatchRequest, QueueKey
from store.java.consume_queue_ends import directories_in
from store.layout.consume_queue_unit import CQ_UNIT_SIZE
from store.layout.directories import BATCH_CONSUME_QUEUES, CONSUME_QUEUES
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import ConsumeQueue
from store.queues.consume_queue_flush import ConsumeQueueFlushJob
from store.queues.unit_queue import UnitQueue
from store.queues.unit_sums import PackedSums
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

QueueRow = tuple[bytes, int, int, int]  # topic, queue id, min offset, max offset

# A flush job holds the files it writes open.
_QUEUES_PER_JOB = 64
# However many queues share the cache, a follower of the log finds its last pull's worth there.
_UNITS_KEPT_MIN = 64
_NO_SUMS: Mapping[QueueKey, PackedSums] = {}


class ConsumeQueueStore:
    """Invariant: a queue with units that no file holds durably is in `_dirty`, or in the job under way. A queue has
    units of one kind, those of its topic's queue.type: it takes it from its first record. One of batches has single
    messages as batches of one.
    """

    def __init__(self, descriptors: DescriptorCache, config: StoreConfig) -> None:
        self._descriptors = descriptors
        self._disk = descriptors.disk
        self._directory = f"{config.store_path_root_dir}/{CONSUME_QUEUES}"
        self._batch_directory = f"{config.store_path_root_dir}/{BATCH_CONSUME_QUEUES}"
        self._file_size = config.mapped_file_size_consume_queue
        self._batch_file_size = config.mapper_file_size_batch_consume_queue
        self._cache_size = config.consume_queue_cache_size
        self._queues: dict[QueueKey, UnitQueue] = {}
        self._dirty: dict[UnitQueue, None] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[UnitQueue]:
        return iter(self._queues.values())

    def find(self, topic: bytes, queue_id: int) -> UnitQueue | None:
        return self._queues.get((topic, queue_id))

    def max_offset(self, key: QueueKey) -> int:
        queue = self._queues.get(key)
        return queue.max_offset if queue is not None else 0

    def put(self, requests: Iterable[DispatchRequest]) -> None:
        """Appends the units of dispatched messages, in memory."""
        queues, dirty = self._queues, self._dirty
        for request in requests:
            queue = queues.get((request.topic, request.queue_id))
            if queue is None or queue.is_batch is not request.is_batch or _begins_again(request, queue):
                queue = self._queue_for(request, queue)
                if queue.is_batch and not request.is_batch:
                    request = request.as_batches()
            if queue.put(request):
                dirty[queue] = None

    def rows(self) -> list[QueueRow]:
        """Every queue's bounds now, for a checkpoint."""
        return [
            (queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)
            for queue in self._queues.values()
        ]

    def pack_sums(self) -> dict[QueueKey, PackedSums]:
        """The sums of every queue's units now, for a checkpoint."""
        packed = {}
        for key, queue in self._queues.items():
            queue.sum_up()
            packed[key] = queue.sums.pack(queue.first_unit)
        return packed

    def set_empty_queues(self, rows: Iterable[QueueRow]) -> None:
        """Queues whose messages have all expired keep their next offset (from a full-state record)."""
        for topic, queue_id, _, max_offset in rows:
            if max_offset and (topic, queue_id) not in self._queues:
                self._add(topic, queue_id, is_batch=False).start_empty(max_offset)

    def restore(self, rows: Iterable[QueueRow], sums: Mapping[QueueKey, PackedSums] = _NO_SUMS) -> str | None:
        """Takes up the queues of a checkpoint, and the sums of their units that are known. Returns what is wrong with
        the first queue that is damaged, or None; then call delete_all() and dispatch the log again. Raises DiskError.
        """
        # One that is without files has no units: it is of any kind.
        batch_queues = {
            directory
            for directory in self._directories(self._batch_directory)
            if self._disk.list_directory(directory)
        }
        for topic, queue_id, min_offset, max_offset in rows:
            is_batch = self._directory_of(topic, queue_id, is_batch=True) in batch_queues
            queue = self._add(topic, queue_id, is_batch=is_batch)
            try:
                fault = queue.restore(min_offset, max_offset)
            except MappedFileQueueError as error:
                fault = str(error)
            if fault is not None:
                return f"{queue.files.directory}: {fault}"
            queue.sums.begin(queue.first_unit, queue.end_unit, sums.get((topic, queue_id)))
        known = {queue.files.directory for queue in self._queues.values()}
        for directory in self._all_directories():
            if directory not in known:
                self._delete_files(directory)  # of a queue that began behind the checkpoint
        return None

    def delete_all(self) -> None:
        """Deletes every ConsumeQueue file, known or not. Raises DiskError. Directories stay: Java minds none."""
        self.forget_all()
        for directory in self._all_directories():
            self._delete_files(directory)

    def forget_all(self) -> None:
        """No queue is known any more. Files stay until delete_all(); a flush job may still be writing some."""
        for queue in self._queues.values():
            queue.files.close()
        self._queues.clear()
        self._dirty.clear()

    def let_go(self, topic: bytes) -> list[UnitQueue]:
        """The topic is deleted: none of its messages is to be read any more. Returns its queues."""
        queues = [queue for (name, _), queue in self._queues.items() if name == topic]
        for queue in queues:
            queue.let_go()
        return queues

    def empty_queues(self, topics: Container[str]) -> list[UnitQueue]:
        """Those of several topics that have no message to be read."""
        return [queue for queue in self._queues.values() if queue.is_empty and queue.topic_name in topics]

    def condemn(self, topic: bytes, queue_id: int) -> None:
        """A queue contradicts the log: without its files the next start finds it damaged and builds all anew.

        It must not be read any more. Raises DiskError.
        """
        files = self._queues[topic, queue_id].files
        files.delete_from(0)
        self._disk.sync_directory(files.directory)

    def dirty(self, least_units: int = 1) -> list[UnitQueue]:
        """Queues with at least so many units that no file holds durably."""
        return [queue for queue in self._dirty if queue.unflushed_count >= least_units]

    def flush_job(self, queues: list[UnitQueue]) -> ConsumeQueueFlushJob | None:
        """Writes and syncs the unflushed units of the first of `queues`, which it takes out of the list.

        None if there is nothing to flush. One job at a time.
        """
        taken: list[UnitQueue] = []
        while queues and len(taken) < _QUEUES_PER_JOB:
            queue = queues.pop()
            self._dirty.pop(queue, None)
            if queue.unflushed_count:
                taken.append(queue)
        return ConsumeQueueFlushJob(self._disk, taken) if taken else None

    def flush_done(self, job: ConsumeQueueFlushJob, *, succeeded: bool) -> None:
        """Settles a job that has run. After an error its units are written anew by the next one."""
        job.settle(succeeded=succeeded)
        if not succeeded:
            for queue, _ in job.flushed_to:
                if self.is_known(queue):
                    self._dirty[queue] = None
            return
        keep_count = max(_UNITS_KEPT_MIN, self._cache_size // CQ_UNIT_SIZE // max(len(self._queues), 1))
        for queue, offset in job.flushed_to:
            queue.flushed(offset, keep_count)
            if queue.unflushed_count and self.is_known(queue):
                self._dirty[queue] = None

    def close(self) -> None:
        for queue in self._queues.values():
            queue.files.close()

    def is_known(self, queue: UnitQueue) -> bool:
        return self._queues.get((queue.topic, queue.queue_id)) is queue

    def _all_directories(self) -> Iterator[str]:
        yield from self._directories(self._directory)
        yield from self._directories(self._batch_directory)

    def _directories(self, of_kind: str) -> Iterator[str]:
        """Of all queues that have one on disk."""
        for topic in directories_in(self._disk, of_kind):
            for queue_id in directories_in(self._disk, f"{of_kind}/{topic}"):
                yield f"{of_kind}/{topic}/{queue_id}"

    def _delete_files(self, directory: str) -> None:
        for name in reversed(self._disk.list_directory(directory)):
            self._disk.unlink(f"{directory}/{name}")

    def _queue_for(self, request: DispatchRequest, queue: UnitQueue | None) -> UnitQueue:
        """Where these go, if `queue` is none, of the other kind or begins again: mostly to a new one."""
        topic, queue_id, is_batch = request.topic, request.queue_id, request.is_batch
        if queue is None:
            return self._add(topic, queue_id, is_batch=is_batch)
        begins_again = _begins_again(request, queue)
        if begins_again:
            log.info("queue begins again topic=%s queue_id=%d", topic.decode(errors="replace"), queue_id)
        elif not queue.is_empty:
            if not is_batch:
                return queue
            # A leader refuses that. So this is a log of other hands, as RocketMQ's brokers take both; or the leader had
            # let go of the queue's earlier messages, as each member does for itself.
            log.error(
                "single messages before a batch are not read any more topic=%s queue_id=%d offset=%d",
                topic.decode(errors="replace"), queue_id, request.queue_offset,
            )  # fmt: skip
        queue.files.delete_from(0)
        self._dirty.pop(queue, None)
        new = self._add(topic, queue_id, is_batch=is_batch)
        if queue.max_offset and not begins_again:
            new.start_empty(queue.max_offset)
        return new

    def _add(self, topic: bytes, queue_id: int, *, is_batch: bool) -> UnitQueue:
        kind, file_size = (
            (BatchConsumeQueue, self._batch_file_size) if is_batch else (ConsumeQueue, self._file_size)
        )
        directory = self._directory_of(topic, queue_id, is_batch=is_batch)
        queue: UnitQueue = kind(self._descriptors, directory, file_size, topic, queue_id)
        self._queues[topic, queue_id] = queue
        return queue

    def _directory_of(self, topic: bytes, queue_id: int, *, is_batch: bool) -> str:
        name = topic.decode("utf-8", "surrogateescape")
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            # Brokers refuse such names, so this is a log of other hands; its files would lie anywhere.
            log.error("topic %r has no directory of its own, its messages are filed under its hex", topic)
            name = topic.hex()
        return f"{self._batch_directory if is_batch else self._directory}/{name}/{queue_id}"


def _begins_again(request: DispatchRequest, queue: UnitQueue) -> bool:
    """Whether RocketMQ had the store since all messages of the queue went with their topic: then it has found no file
    of it, and gave offsets from 0 on.
    """
    return not request.queue_offset and queue.is_empty and queue.max_offset > 0
