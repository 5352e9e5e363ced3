"""All ConsumeQueues of a store: found by topic and queue id, restored at start, flushed by jobs.

What is restored comes from the newest checkpoint (store/checkpoint_file.py): the minimum and maximum offset of every
queue at one applied index. Files that do not bear it out mean that all queues are rebuilt from the log.
"""

import logging
from collections.abc import Iterable, Iterator

from disk.mapped_file import DescriptorCache
from disk.mapped_file_queue import MappedFileQueueError
from store.consume_queue import ConsumeQueue
from store.consume_queue_flush import ConsumeQueueFlushJob
from store.dispatch_request import DispatchRequest, QueueKey, unit_bytes
from store.layout.consume_queue_unit import CQ_UNIT_SIZE

log = logging.getLogger(__name__)

QueueRow = tuple[bytes, int, int, int]  # topic, queue id, min offset, max offset

# A flush job holds the files it writes open.
_QUEUES_PER_JOB = 64
# However many queues share the cache, a follower of the log finds its last pull's worth there.
_UNITS_KEPT_MIN = 64


class ConsumeQueueStore:
    """Invariant: a queue with units that no file holds durably is in `_dirty`, or in the job under way."""

    def __init__(self, descriptors: DescriptorCache, directory: str, file_size: int, cache_size: int) -> None:
        self.directory = directory
        self._descriptors = descriptors
        self._disk = descriptors.disk
        self._file_size = file_size
        self._cache_size = cache_size
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._dirty: dict[ConsumeQueue, None] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def max_offset(self, key: QueueKey) -> int:
        queue = self._queues.get(key)
        return queue.max_offset if queue is not None else 0

    def put(self, requests: Iterable[DispatchRequest]) -> None:
        """Appends the units of dispatched messages, in memory."""
        queues, dirty = self._queues, self._dirty
        for request in requests:
            queue = queues.get((request.topic, request.queue_id))
            if queue is None:
                queue = self._add(request.topic, request.queue_id)
            if queue.put(request.queue_offset, unit_bytes(request)):
                dirty[queue] = None

    def rows(self) -> list[QueueRow]:
        """Every queue's bounds now, for a checkpoint."""
        return [
            (queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)
            for queue in self._queues.values()
        ]

    def set_empty_queues(self, rows: Iterable[QueueRow]) -> None:
        """Queues whose messages have all expired keep their next offset (from a full-state record)."""
        for topic, queue_id, _, max_offset in rows:
            if max_offset and (topic, queue_id) not in self._queues:
                self._add(topic, queue_id).start_empty(max_offset)

    def restore(self, rows: Iterable[QueueRow]) -> str | None:
        """Takes up the queues of a checkpoint. Returns what is wrong with the first that is damaged, or None; then
        call delete_all() and dispatch the log again. Raises DiskError.
        """
        for topic, queue_id, min_offset, max_offset in rows:
            queue = self._add(topic, queue_id)
            try:
                fault = queue.restore(min_offset, max_offset)
            except MappedFileQueueError as error:
                fault = str(error)
            if fault is not None:
                return f"{queue.files.directory}: {fault}"
        known = {queue.files.directory for queue in self._queues.values()}
        for directory in self._directories():
            if directory not in known:
                self._delete_files(directory)  # of a queue that began behind the checkpoint
        return None

    def delete_all(self) -> None:
        """Deletes every ConsumeQueue file, known or not. Raises DiskError. Directories stay: Java minds none."""
        self.forget_all()
        for directory in self._directories():
            self._delete_files(directory)

    def forget_all(self) -> None:
        """No queue is known any more. Files stay until delete_all(); a flush job may still be writing some."""
        for queue in self._queues.values():
            queue.files.close()
        self._queues.clear()
        self._dirty.clear()

    def condemn(self, topic: bytes, queue_id: int) -> None:
        """A queue contradicts the log: without its files the next start finds it damaged and builds all anew.

        It must not be read any more. Raises DiskError.
        """
        files = self._queues[topic, queue_id].files
        files.delete_from(0)
        self._disk.sync_directory(files.directory)

    def dirty(self, least_units: int = 1) -> list[ConsumeQueue]:
        """Queues with at least so many units that no file holds durably."""
        return [queue for queue in self._dirty if queue.unflushed_count >= least_units]

    def flush_job(self, queues: list[ConsumeQueue]) -> ConsumeQueueFlushJob | None:
        """Writes and syncs the unflushed units of the first of `queues`, which it takes out of the list.

        None if there is nothing to flush. One job at a time.
        """
        taken: list[ConsumeQueue] = []
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
                if self._is_known(queue):
                    self._dirty[queue] = None
            return
        keep_count = max(_UNITS_KEPT_MIN, self._cache_size // CQ_UNIT_SIZE // max(len(self._queues), 1))
        for queue, offset in job.flushed_to:
            queue.flushed(offset, keep_count)
            if queue.unflushed_count and self._is_known(queue):
                self._dirty[queue] = None

    def close(self) -> None:
        for queue in self._queues.values():
            queue.files.close()

    def _is_known(self, queue: ConsumeQueue) -> bool:
        return self._queues.get((queue.topic, queue.queue_id)) is queue

    def _directories(self) -> Iterator[str]:
        """Of all queues that have one on disk."""
        for topic in self._disk.list_directory(self.directory):
            for queue_id in self._disk.list_directory(f"{self.directory}/{topic}"):
                yield f"{self.directory}/{topic}/{queue_id}"

    def _delete_files(self, directory: str) -> None:
        for name in reversed(self._disk.list_directory(directory)):
            self._disk.unlink(f"{directory}/{name}")

    def _add(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        name = topic.decode("utf-8", "surrogateescape")
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            # Brokers refuse such names, so this is a log of other hands; its files would lie anywhere.
            log.error("topic %r has no directory of its own, its messages are filed under its hex", topic)
            name = topic.hex()
        directory = f"{self.directory}/{name}/{queue_id}"
        queue = ConsumeQueue(self._descriptors, directory, self._file_size, topic, queue_id)
        self._queues[topic, queue_id] = queue
        return queue
