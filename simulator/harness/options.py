"""Everything that differs from run to run, drawn from the seed: sizes, speeds, and which faults come how often."""

from dataclasses import dataclass, field, fields
from random import Random
from types import MappingProxyType
from typing import Any

from dledger.config import FlushMode

# Of the simulated brokers: level -> ms.
DELAY_LEVELS = MappingProxyType({1: 50, 2: 400, 3: 1_500})
TIMER_PRECISION_MS = 100
TIMER_ROLL_WINDOW_MS = 1_500
# Kinds of faults (faults.py) and how often each comes, relative to the others, in a seed that has it.
_PUSHES_IN_WINDOW = 24
_FAULT_WEIGHTS = {
    "crash": 6,
    "crash_point": 4,
    "power_loss": 6,
    "power_loss_of_all": 2,
    "clean_stop": 1,
    "pause": 4,
    "partition": 6,
    "one_way": 4,
    "isolate_leader": 5,
    "close_connection": 3,
    "slow_disk": 3,
    "hung_disk": 1,
    "full_disk": 1,
    "failed_sync": 1,
    "wiped_disk": 1,
}
FAULT_KINDS = tuple(_FAULT_WEIGHTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Times in virtual µs or ms, sizes in bytes, probabilities per message."""

    member_count: int
    flush_mode: FlushMode
    fault_phase_ms: int
    # the group
    tick_interval_ms: int
    heart_beat_interval_ms: int
    election_timeout_ms_min: int
    data_file_size: int
    index_file_size: int
    consume_queue_file_size: int
    recent_bytes_max: int
    push_size_max: int
    push_window_size: int
    checkpoint_entries_max: int
    index_keys_per_flush: int
    clock_skew_ms_max: int
    # network
    delay_us_min: int
    delay_us_max: int
    packet_loss: float
    duplication: float
    reorders: bool
    straggling: float  # some messages come a second or more late, behind elections
    # disk
    sync_latency_us_min: int
    sync_latency_us_max: int
    # workload
    put_interval_us: int
    batch_count_max: int
    body_size_max: int
    queue_count: int
    delayed: float  # how many batches are delayed messages
    timers: float  # how many batches are messages with a time, and recalls of them
    has_keys: bool  # messages have keys, and are asked for by them
    # faults
    fault_interval_ms: int
    fault_duration_ms_max: int
    leader_falls: float  # how many new leaders fall soon after their election
    leader_falls_us_max: int
    voter_falls: float  # how many voters fall behind a vote that another candidate still hopes for
    rolling_isolation: bool  # they fall by being cut off, each until the next one is
    repeats_answers: bool  # new leaders hear again what was acknowledged to them in earlier terms
    file_reserved_time_ms: int  # after which data files go
    clean_resource_interval_ms: int
    begin_accidents: float  # how many moves of a log's begin are followed by a power loss
    membership_interval_ms: int  # members go and come back about so often; 0: none does
    voters_min: int  # so many are left, whoever goes
    long_absence_ms_max: int  # members are away for so long now and then; 0: none is
    clock_jump_interval_ms: int = 0  # 0: nobody sets a clock
    stand_still_interval_ms: int = 0  # 0: no process and no host stands still but by the faults below
    recovery_crashes: float = 0.0  # how many starts are cut short by a crash
    scrub_bytes_per_second: int = 0  # 0: nobody reads again what lies on disk
    scrub_pause_ms: int = 0
    hand_over_interval_ms: int = 0  # 0: no operator moves the leadership
    stops_hand_over: bool = False  # a member that stops cleanly hands over before
    preferred_leader_ids: tuple[str, ...] = ()
    disk_fault_interval_ms: int = 0  # 0: disks hang, fill and fail by the faults below alone
    disk_trial: bool = False  # at the end the leader's disk fills and hangs with nothing else in the way
    damage_interval_ms: int = 0  # between damages to what was durable; 0: there are none
    quorum_state_loss_interval_ms: int = 0  # between losses of the file of term and vote; 0: there are none
    synced_mark_loss_interval_ms: int = 0  # between losses of the synced mark; 0: there are none
    file_loss_interval_ms: int = 0  # between data files that are taken away or cut short; 0: none is
    lost_write_interval_ms: int = 0  # between writes that a disk has lost; 0: it loses none
    newcomers: float = 0.0  # how many members that are out make room for new ones, with ids of their own
    repairs_spoiled: float = 0.0  # how many answers to repairs come with a bit flipped
    faults: dict[str, int] = field(default_factory=dict)  # kind -> weight
    is_calm: bool = False  # an hour or so with faults far apart (calm.py)
    read_interval_us: int = 0  # between reads that must not be stale; 0: there are none
    leader_cut_interval_ms: int = 0  # between leaders that are cut off without knowing; 0: none is
    delivery_falls: float = 0.0  # how many deliveries and ends of transactions their leader's fall cuts short
    transactions: float = 0.0  # how many batches are prepared messages
    pop_interval_us: int = 0  # between pops; 0: there are none
    access_interval_us: int = 0  # between changes of users and policies; 0: there are none
    paces_ticks: bool = False  # members at rest tick seldom, as servers do

    def describe(self) -> str:
        """One line for the report of a failure."""
        shown = [
            f"{item.name}={value.value if isinstance(value, FlushMode) else value}"
            for item in fields(self)
            if item.name != "faults" and (value := getattr(self, item.name)) is not None
        ]
        return " ".join([*shown, "faults=" + ",".join(self.faults)])


def draw_options(seed: int, member_count: int | None = None) -> Options:
    """The same for the same arguments, on every machine."""
    random = Random(f"{seed}/options")
    drawn_count = random.choice((3, 3, 3, 5))
    # The rarest orders of events need many elections in a row, each with its own accident.
    is_stormy = random.random() < 0.4
    delay_us_max = random.choice(
        (1_000, 5_000, 30_000) if is_stormy else (200, 1_000, 5_000, 30_000, 100_000)
    )
    sync_latency_us_max = random.choice(
        (2_000, 10_000, 40_000) if is_stormy else (300, 2_000, 10_000, 40_000)
    )
    # A seed with a few kinds of faults goes deeper into each than one with all of them.
    kinds = sorted(_FAULT_WEIGHTS)
    chosen = random.sample(kinds, random.randint(3, len(kinds)))
    flush_mode = FlushMode.SYNC_FLUSH if random.random() < 0.75 else FlushMode.ASYNC_FLUSH
    # Of its own dice: what was recorded of a seed before there was retention stays what it was, unless it has any.
    later = Random(f"{seed}/begins-anew")
    retains = later.random() < 0.5
    scrub = Random(f"{seed}/scrub")
    return Options(
        member_count=member_count or drawn_count,
        **_draw_hand_overs(Random(f"{seed}/transfers-any/a")),
        flush_mode=flush_mode,
        fault_phase_ms=random.randint(8_000, 20_000),
        tick_interval_ms=10,
        heart_beat_interval_ms=50 if is_stormy else 150,
        election_timeout_ms_min=300 if is_stormy else 1_000,
        data_file_size=random.choice((16_384, 32_768, 65_536)),
        index_file_size=32 * random.choice((64, 256, 1024)),
        consume_queue_file_size=20 * random.choice((10, 50, 200)),
        recent_bytes_max=random.choice((0, 4_096, 65_536, 1 << 20)),
        push_size_max=(push_size_max := 512 if is_stormy else random.choice((512, 4_096, 65_536))),
        # Each lost or overtaken message of a window has all behind it sent again: 300 small ones fill a run with
        # nothing else.
        push_window_size=min(random.choice((65_536, 262_144)), _PUSHES_IN_WINDOW * push_size_max),
        checkpoint_entries_max=random.choice((20, 100, 1_000)),
        index_keys_per_flush=Random(f"{seed}/index").choice((1, 10, 50, 200)),
        clock_skew_ms_max=random.choice((0, 5, 10_000)),
        delay_us_min=random.randint(20, delay_us_max // 2),
        delay_us_max=delay_us_max,
        packet_loss=random.choice((0.0, 0.0, 0.01, 0.1, 0.25)),
        duplication=random.choice((0.0, 0.0, 0.02, 0.1)),
        reorders=random.random() < 0.5,
        straggling=random.choice((0.0, 0.0, 0.002, 0.02)),
        sync_latency_us_min=random.randint(50, sync_latency_us_max // 2),
        sync_latency_us_max=sync_latency_us_max,
        put_interval_us=random.choice((10_000, 30_000) if is_stormy else (10_000, 30_000, 100_000)),
        batch_count_max=random.choice((1, 3, 8)),
        body_size_max=random.choice((60, 300, 2_000)),
        queue_count=random.randint(1, 6),
        delayed=Random(f"{seed}/delayed").choice((0.0, 0.0, 0.3)),
        timers=Random(f"{seed}/timer-options").choice((0.0, 0.0, 0.3)),
        delivery_falls=Random(f"{seed}/delivery-falls").choice((0.0, 0.5)),
        pop_interval_us=Random(f"{seed}/pops").choice((0, 0, 0, 30_000)),
        access_interval_us=Random(f"{seed}/access-options").choice((0, 0, 0, 50_000)),
        transactions=Random(f"{seed}/transactions").choice((0.0, 0.0, 0.0, 0.4)),
        has_keys=Random(f"{seed}/indexed").choice((False, False, True)),
        fault_interval_ms=2_000 if is_stormy else random.choice((300, 800, 2_000)),
        fault_duration_ms_max=random.choice((200, 1_000) if is_stormy else (200, 1_000, 4_000)),
        leader_falls=0.8 if is_stormy else random.choice((0.0, 0.3)),
        leader_falls_us_max=random.choice((3_000, 30_000, 300_000)),
        voter_falls=random.choice((0.0, 0.9)),
        rolling_isolation=is_stormy and random.random() < 0.7,
        repeats_answers=random.random() < 0.5,
        # Else only a full disk makes them go.
        file_reserved_time_ms=later.choice((1, 500, 3_000)) if retains else 1 << 40,
        clean_resource_interval_ms=later.choice((50, 500)),
        begin_accidents=later.choice((0.0, 0.3)),
        long_absence_ms_max=later.choice((0, 4_000, 8_000)) if retains else 0,
        clock_jump_interval_ms=Random(f"{seed}/clock-options").choice((0, 300, 2_000)),
        # In one of eight each: what the other accidents do in a seed stays as it was in most.
        stand_still_interval_ms=Random(f"{seed}/halts").choice((*[0] * 7, 3_000)),
        recovery_crashes=Random(f"{seed}/recovery-crashes").choice((*[0.0] * 7, 0.3)),
        membership_interval_ms=_draw_membership_interval_ms(seed),
        voters_min=Random(f"{seed}/voters-min").choice((1, 2)),
        scrub_bytes_per_second=scrub.choice((0, 1 << 16, 1 << 20)),
        scrub_pause_ms=scrub.choice((100, 1_000)),
        disk_fault_interval_ms=Random(f"{seed}/disk-interval").choice((*[0] * 6, 1_500, 4_000)),
        disk_trial=Random(f"{seed}/disk-trial").random() < 0.1,
        damage_interval_ms=Random(f"{seed}/damage-interval").choice((0, 0, 0, 500)),
        quorum_state_loss_interval_ms=Random(f"{seed}/quorum-state-losses").choice((0, 0, 0, 3_000)),
        synced_mark_loss_interval_ms=Random(f"{seed}/synced-mark-losses").choice((0, 0, 0, 2_000)),
        file_loss_interval_ms=Random(f"{seed}/file-losses").choice((0, 0, 0, 1_000)),
        lost_write_interval_ms=Random(f"{seed}/lost-writes-options").choice((0, 0, 0, 500)),
        newcomers=Random(f"{seed}/newcomers-options").choice((0.0, 0.7)),
        repairs_spoiled=Random(f"{seed}/repairs-spoiled-options").choice((0.0, 0.3)),
        **_draw_reads(Random(f"{seed}/reads")),
        faults={kind: _FAULT_WEIGHTS[kind] for kind in chosen},
    )


def _draw_membership_interval_ms(seed: int) -> int:
    """Of its own dice: seeds in which nobody goes stay what they were."""
    random = Random(f"{seed}/voters")
    return random.choice((200, 1_000)) if random.random() < 0.3 else 0


def _draw_reads(random: Random) -> dict[str, Any]:
    """Nothing for three seeds of five, which stay what they were."""
    read_interval_us = random.choice((0, 0, 0, 10_000, 50_000))
    if not read_interval_us:
        return {}
    return {
        "read_interval_us": read_interval_us,
        "leader_cut_interval_ms": random.choice((0, 1_500, 4_000)),
    }


def _draw_hand_overs(random: Random) -> dict[str, Any]:
    """Nothing for most seeds: a leader that is moved about is one that falls less."""
    if random.random() < 0.7:
        return {}
    return {
        "hand_over_interval_ms": random.choice((300, 300, 1_000)),
        "stops_hand_over": random.random() < 0.7,
        "preferred_leader_ids": random.choice(((), (), ("n0",), ("n1", "n2"))),
    }
