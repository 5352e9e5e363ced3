"""Disks that lose power, refuse syncs or are full: derived files catch up, and nothing acknowledged is lost."""

from pathlib import Path
from random import Random

import pytest
from store_group import Put, StoreGroup, StoreMember, message

from dledger.entry import EntryKind, walk
from message.decoder import decode_message
from simulator.world.sim_disk import SimDisk
from store.put_message import PutStatus


def sim_disk(seed: int) -> SimDisk:
    return SimDisk(Random(seed), lambda: 0, lambda: 0)


def bodies_seen(member: StoreMember) -> dict[tuple[bytes, int], list[bytes]]:
    """Bodies by queue, as pulls get them."""
    seen: dict[tuple[bytes, int], list[bytes]] = {}
    for queue in member.store.queues:
        topic, bodies = queue.topic.decode(), seen.setdefault((queue.topic, queue.queue_id), [])
        while len(bodies) < queue.max_offset:
            result = member.store.reads.get_message(topic, queue.queue_id, len(bodies), 32, 1 << 20)
            bodies += [decode_message(buffer).body for buffer in result.buffers]
    return seen


def bodies_in_log(member: StoreMember) -> dict[tuple[bytes, int], list[bytes]]:
    found: dict[tuple[bytes, int], list[bytes]] = {}
    log = member.replica.log
    for batch in log.batches_from(log.ledger_begin_index, member.store.reads.applied_index, 1 << 20):
        for header, body in walk(batch.buffer, batch.pos):
            if header.kind == EntryKind.MESSAGE:
                record = decode_message(body)
                found.setdefault((record.topic.encode(), record.queue_id), []).append(record.body)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_after_power_losses_queues_are_what_the_log_says_and_acknowledged_is_kept(seed: int) -> None:
    random = Random(seed)
    disk = sim_disk(seed)
    group = StoreGroup(Path("/sim"), disk_of=lambda peer: disk, thorough_interval_ms=300)
    group.start()
    puts: list[tuple[bytes, Put]] = []
    for round_number in range(6):
        member = group.lead()
        for number in range(random.randint(1, 30)):
            body = b"%d/%d" % (round_number, number)
            puts.append(
                (body, member.put(*[message(queue_id=random.randrange(4), body=body)] * random.randint(1, 9)))
            )
            group.run_for(random.choice([0, 0, 1, 20]))
        group.run_for(random.choice([0, 5, 350, 1200]))
        member.up = False
        del group.members["n0"]
        disk.power_loss()
        group.start()
        member = group.lead()
        group.settle()
        seen = bodies_seen(member)
        assert seen == bodies_in_log(member)
        stored = {body for bodies in seen.values() for body in bodies}
        acknowledged = {body for body, put in puts if put.statuses == [PutStatus.PUT_OK]}
        assert acknowledged <= stored
    assert len(acknowledged) > 10


def test_a_failed_sync_of_a_queue_is_made_good_by_writing_again() -> None:
    disk = sim_disk(1)
    group = StoreGroup(Path("/sim"), disk_of=lambda peer: disk, thorough_interval_ms=5000)
    group.start()
    member = group.lead()
    member.put(*[message(queue_id=number % 3, body=b"%d" % number) for number in range(120)])
    group.run_for(3000)  # the log is synced and marked: only derived files are left to fail
    disk.failing_syncs = 2
    group.run_until(
        lambda: member.store._derived.flusher.checkpoint_index == member.store.reads.applied_index
    )
    assert disk.failing_syncs == 0
    assert member.failure is None
    expected = bodies_seen(member)
    member.up = False
    del group.members["n0"]
    disk.power_loss()
    group.start()
    member = group.members["n0"]
    assert member.store.reads.applied_index == member.replica.log.ledger_end_index
    assert bodies_seen(member) == expected


def test_a_full_disk_refuses_and_a_put_after_it_goes_on_densely() -> None:
    disk = sim_disk(1)
    group = StoreGroup(Path("/sim"), disk_of=lambda peer: disk)
    group.start()
    member = group.lead()
    member.put(message())
    group.settle()
    disk.is_full = True
    refused = None
    for _ in range(40):
        put = member.put(message(body=bytes(10_000)))
        if not hasattr(put.result, "results"):
            refused = put
            break
        group.run_for(20)
    assert refused is not None
    assert refused.refusal is PutStatus.UNKNOWN  # the write failed: a power loss now might still leave it
    next_offset = member.store.reads.max_offset("T", 0)
    disk.is_full = False
    group.run_for(3000)
    member = group.lead()
    assert member.put(message()).queue_offsets == [next_offset]
