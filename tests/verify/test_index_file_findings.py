"""IndexFiles of recorded stores: each wrong place is counted once, and nothing else is."""

import builtins
import errno
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from derived_store import Stores, cut_out, derived_findings, entries_of, facts_of, made_once
from msgspec import structs
from store_group import INDEX_FILE_SHAPE

from disk.mapped_file import DescriptorCache
from disk.real_disk import RealDisk
from message.decoder import decode_message
from store.index.index_file_list import IndexFileList
from store.index.index_file_mark import IndexFileMark
from store.layout.index_file import (
    HASH_SLOT,
    HASH_SLOT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    IndexHeader,
    entry_offset,
    index_file_size,
    parse_index_header,
    slot_offset,
)
from verify.derived import DerivedUnit, check
from verify.findings import Finding, Kind
from verify.index.index_file_plan import plan_index_files
from verify.replica import Replica, open_replica

SLOTS = 5000
# What an entry of a file is made from: hash, physical offset.
Key = tuple[int, int]
STORES = ("single-4.9.5-clean", "single-5.5.0-clean")


class IndexedStore:
    """A recorded store with its one IndexFile, to be changed."""

    def __init__(self, directory: Path, name: str) -> None:
        self.root = cut_out(name, directory)
        [self.path] = sorted((self.root / "index").iterdir())
        self.content = bytearray(self.path.read_bytes())

    @property
    def header(self) -> IndexHeader:
        return parse_index_header(self.content)

    @property
    def replica(self) -> Replica:
        return open_replica(self.root)

    def entry(self, number: int) -> tuple[int, int, int, int]:
        key_hash, phy_offset, seconds, previous = INDEX_ENTRY.unpack_from(
            self.content, entry_offset(number, SLOTS)
        )
        return key_hash, phy_offset, seconds, previous

    def set_entry(self, number: int, *values: int) -> None:
        INDEX_ENTRY.pack_into(self.content, entry_offset(number, SLOTS), *values)

    def keys(self) -> list[Key]:
        return [self.entry(number)[:2] for number in range(1, self.header.index_count)]

    def times(self) -> dict[int, int]:
        messages = [decode_message(body) for _, body in entries_of(self.replica)]
        return {message.phy_offset: message.store_timestamp for message in messages}

    def set_header(self, **changed: int) -> None:
        self.content[:INDEX_HEADER_SIZE] = structs.replace(self.header, **changed).pack()

    def findings(self) -> list[Finding]:
        self.path.write_bytes(self.content)
        return derived_findings([self.replica])

    def wrong(self) -> tuple[int, str]:
        """Count and sentence of the one finding."""
        [finding] = self.findings()
        assert (finding.kind, finding.replica) == (Kind.KEY_INDEX_WRONG, self.root.name)
        assert finding.file == f"index/{self.path.name}"
        return finding.count, finding.sentence


def made_file(keys: Sequence[Key], times: dict[int, int], begin: int | None = None) -> bytearray:
    """An IndexFile as Java makes it. `times`: physical offset -> store timestamp; `begin`: of a message whose keys are
    to be missing."""
    content = bytearray(index_file_size(SLOTS, 4 * SLOTS))
    first = keys[0][1] if begin is None else begin
    used = 0
    for number, (key_hash, phy_offset) in enumerate(keys, 1):
        at = slot_offset(key_hash, SLOTS)
        [previous] = HASH_SLOT.unpack_from(content, at)
        used += previous == 0
        seconds = (times[phy_offset] - times[first]) // 1000
        INDEX_ENTRY.pack_into(content, entry_offset(number, SLOTS), key_hash, phy_offset, seconds, previous)
        HASH_SLOT.pack_into(content, at, number)
    last = keys[-1][1]
    header = IndexHeader(times[first], times[last], first, last, used, len(keys) + 1)
    content[:INDEX_HEADER_SIZE] = header.pack()
    return content


@pytest.fixture(params=STORES)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> IndexedStore:
    return IndexedStore(tmp_path, request.param)


def test_java_s_file_is_made_again_from_its_keys(store: IndexedStore) -> None:
    assert made_file(store.keys(), store.times()) == store.content
    assert store.findings() == []


@pytest.mark.parametrize("batch", [1000, 100])
def test_a_file_of_ours_is_as_sound_as_java_s(store: IndexedStore, tmp_path: Path, batch: int) -> None:
    keys, times = store.keys(), store.times()
    java_s = bytes(store.content)
    store.path.unlink()
    shape = IndexFileShape(SLOTS, 4 * SLOTS)
    index = IndexFileList(
        DescriptorCache(RealDisk()), str(store.path.parent), str(tmp_path / "mark"), shape, 1 << 15
    )
    index.open(stopped_cleanly=True)
    last = 0
    for end in range(1, len(keys) + 1):
        is_whole = end == len(keys) or keys[end][1] != keys[end - 1][1]
        if is_whole and (end - last >= batch or end == len(keys)):
            part = keys[last:end]
            index.put(
                [key_hash for key_hash, _ in part],
                [phy_offset for _, phy_offset in part],
                [times[phy_offset] for _, phy_offset in part],
                part[-1][1] + 1,
            )
            job = index.flush(times[keys[0][1]])
            assert job is not None
            job.run()
            index.job_done(job, succeeded=True)
            last = end
    index.close()
    [store.path] = (store.root / "index").iterdir()
    store.content[:] = store.path.read_bytes()
    assert store.content == java_s
    assert store.findings() == []


@pytest.mark.parametrize("number", [1, 500, -1])
def test_a_wrong_hash_is_one_place(store: IndexedStore, number: int) -> None:
    number = number % store.header.index_count
    key_hash, phy_offset, seconds, previous = store.entry(number)
    store.set_entry(number, key_hash ^ 1, phy_offset, seconds, previous)
    count, sentence = store.wrong()
    assert count == 1
    assert sentence == (
        f"entry {number} has hash {key_hash ^ 1} and physical offset {phy_offset}; "
        f"the log has hash {key_hash} and physical offset {phy_offset}"
    )


@pytest.mark.parametrize("number", [1, 500, -1])
def test_a_wrong_physical_offset_is_one_place(store: IndexedStore, number: int) -> None:
    number = number % store.header.index_count
    key_hash, phy_offset, seconds, previous = store.entry(number)
    store.set_entry(number, key_hash, phy_offset + 3, seconds, previous)
    count, sentence = store.wrong()
    assert count == 1
    assert sentence.startswith(f"entry {number} has hash {key_hash} and physical offset {phy_offset + 3}; ")


def test_a_wrong_time_is_one_place(store: IndexedStore) -> None:
    key_hash, phy_offset, seconds, previous = store.entry(500)
    store.set_entry(500, key_hash, phy_offset, seconds + 7, previous)
    assert store.wrong() == (
        1,
        f"entry 500 was stored {seconds + 7} s after the file began, the message {seconds} s",
    )


def test_a_chain_that_leaves_its_slot_is_one_place(store: IndexedStore) -> None:
    number = next(number for number in range(2, store.header.index_count) if store.entry(number)[3])
    *values, previous = store.entry(number)
    store.set_entry(number, *values, previous - 1)
    assert store.wrong() == (
        1,
        f"entry {number} is chained to entry {previous - 1}, its slot held {previous} before",
    )


def test_a_slot_that_lost_its_chain_is_one_place(store: IndexedStore) -> None:
    key_hash = store.entry(500)[0]
    at = slot_offset(key_hash, SLOTS)
    [newest] = HASH_SLOT.unpack_from(store.content, at)
    HASH_SLOT.pack_into(store.content, at, 0)
    assert store.wrong() == (1, f"slot {key_hash % SLOTS} says entry 0, its newest one is {newest}")


def test_a_zeroed_block_counts_each_of_its_entries(store: IndexedStore) -> None:
    first = 300
    at = entry_offset(first, SLOTS)
    store.content[at : at + 205 * INDEX_ENTRY_SIZE] = bytes(205 * INDEX_ENTRY_SIZE)
    count, sentence = store.wrong()
    assert count == 205
    assert sentence.startswith(f"205 places; the first: entry {first} has hash 0 and physical offset 0; ")


def test_faults_of_each_kind_add_up(store: IndexedStore) -> None:
    for number in (40, 41, 700):
        key_hash, phy_offset, seconds, previous = store.entry(number)
        store.set_entry(number, key_hash ^ 1, phy_offset, seconds, previous)
    *values, previous = store.entry(900)
    store.set_entry(900, *values, previous + 1)
    struct.pack_into(">i", store.content, INDEX_HEADER_SIZE + HASH_SLOT_SIZE * 17, 19_999)
    store.set_header(hash_slot_count=7)
    assert store.wrong()[0] == 6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("begin_phy_offset", -4),
        ("begin_timestamp", 5),
        ("end_timestamp", 5),
        ("end_phy_offset", 5),
        ("hash_slot_count", 1),
        ("index_count", 30_000),
    ],
)
def test_a_wrong_header_is_one_place(store: IndexedStore, field: str, value: int) -> None:
    store.set_header(**{field: value})
    count, sentence = store.wrong()
    assert (count, sentence[:10]) == (1, "the header")


@pytest.mark.parametrize("drop", [slice(0, 3), slice(400, 403), slice(-3, None)])
def test_keys_that_are_not_in_the_file_are_counted(tmp_path: Path, drop: slice) -> None:
    """Of 4.9.5, which has no tags: there each key is needed."""
    store = IndexedStore(tmp_path, "single-4.9.5-clean")
    keys = store.keys()
    assert store.header.begin_phy_offset == keys[0][1]
    dropped = keys[drop]
    del keys[drop]
    store.content = made_file(keys, store.times(), begin=store.header.begin_phy_offset)
    phy_offset, key_hash = dropped[0][1], dropped[0][0]
    assert store.wrong() == (
        3,
        f"3 places; the first: a key of the message at physical offset {phy_offset}, hash {key_hash}, has no entry",
    )


def test_a_key_that_no_message_has_is_one_place(store: IndexedStore) -> None:
    keys = store.keys()
    keys.insert(500, (12345, keys[499][1]))
    store.content = made_file(keys, store.times())
    assert store.wrong() == (
        1,
        f"entry 501 has hash 12345 and physical offset {keys[499][1]}, and the log has no such key there",
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_message_that_was_indexed_twice_is_called_so(store: IndexedStore, count: int) -> None:
    """As RocketMQ does it at a start after a kill, with the last one."""
    keys = store.keys()
    end = (
        next(at for at in range(500, len(keys)) if keys[at - 1][1] != keys[at][1] == keys[at + 1][1]) + 2
    )  # behind a message with two keys
    keys[end:end] = keys[end - count : end]
    store.content = made_file(keys, store.times())
    key_hash, phy_offset = keys[end]
    sentence = (
        f"entry {end + 1} has hash {key_hash} and physical offset {phy_offset}, as an entry before it has, "
        "and the log has that key once"
    )
    assert store.wrong() == (count, sentence if count == 1 else f"{count} places; the first: {sentence}")


def test_a_message_s_keys_may_be_in_two_files(store: IndexedStore) -> None:
    keys, times = store.keys(), store.times()
    cut = next(at for at in range(500, len(keys)) if keys[at - 1][1] == keys[at][1])
    store.content = made_file(keys[:cut], times)
    other = store.path.with_name("9" + store.path.name[1:])
    other.write_bytes(made_file(keys[cut:], times))
    fresh = store.path.with_name("99" + store.path.name[2:])
    fresh.write_bytes(bytes(len(store.content)))
    assert store.findings() == []
    other.write_bytes(made_file(keys[cut + 20 :], times))
    assert sum(finding.count for finding in store.findings()) == 20, "each is missed once"


def test_entries_of_damaged_and_expired_messages_are_not_judged(store: IndexedStore) -> None:
    replica = store.replica
    entries = [store.entry(number) for number in range(1, store.header.index_count)]
    damaged = entries[200][1]
    with (store.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(damaged + 100)
        file.write(bytes(40))
    facts = facts_of(replica, damaged=((damaged, damaged + 1),))
    assert derived_findings([replica], facts=facts) == []
    later = replace(replica, data_files=replica.data_files[1:])
    assert derived_findings([later]) == []


def test_behind_a_crash_the_newest_keys_may_be_missing_or_too_many(store: IndexedStore) -> None:
    (store.root / "abort").touch()
    keys, times = store.keys(), store.times()
    store.content = made_file(keys[:-30], times)
    assert store.findings() == []
    store.content = made_file([*keys, (77, 1 << 30)], {**times, 1 << 30: times[keys[-1][1]]})
    assert store.findings() == []


def test_a_file_of_unusual_size_is_a_note(store: IndexedStore) -> None:
    store.path.write_bytes(store.content[:-4])
    units, notes, _ = plan_index_files(store.replica, 0, 1 << 40, [])
    assert units == []
    name = f"{store.root.name}: index/{store.path.name}"
    assert notes == [f"{name} was not looked at: its size does not tell how many slots it has"]
    store.path.write_bytes(b"short")
    assert plan_index_files(store.replica, 0, 1 << 40, [])[1] == notes


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory)


class TestOurOwnShape:
    """What the conf says of slots is nowhere in an IndexFile: the mark of our IndexFiles says it."""

    @pytest.fixture
    def stores(self, template: Path, tmp_path: Path) -> Stores:
        return Stores(template, tmp_path)

    def test_files_are_looked_at_and_sound(self, stores: Stores) -> None:
        replica = stores.replicas()[0]
        units, notes, _ = plan_index_files(replica, 0, 1 << 40, [])
        assert (notes, {unit.file.shape for unit in units}) == ([], {INDEX_FILE_SHAPE})
        assert len(units) > 1, "files are full in this store"
        assert derived_findings([replica]) == []

    def test_a_wrong_chain_is_found(self, stores: Stores) -> None:
        path = sorted((stores.roots[0] / "index").iterdir())[0]
        content = bytearray(path.read_bytes())
        at = entry_offset(200, INDEX_FILE_SHAPE.slot_count)
        *kept, previous = INDEX_ENTRY.unpack_from(content, at)
        INDEX_ENTRY.pack_into(content, at, *kept, previous + 1)
        path.write_bytes(content)
        [finding] = stores.findings()
        assert (finding.kind, finding.count) == (Kind.KEY_INDEX_WRONG, 1)
        assert finding.sentence.startswith(f"entry 200 is chained to entry {previous + 1}")

    def test_without_the_mark_each_file_is_a_note(self, stores: Stores) -> None:
        root = stores.roots[0]
        (root / "dledger-n0" / "pydledger" / "key-index-mark").unlink()
        units, notes, _ = plan_index_files(open_replica(root), 0, 1 << 40, [])
        assert (units, len(notes)) == ([], len(list((root / "index").iterdir())))

    def test_files_of_java_s_shape_are_java_s(self, store: IndexedStore) -> None:
        replica = replace(store.replica, index_file_mark=IndexFileMark(shape=INDEX_FILE_SHAPE))
        [unit], notes, _ = plan_index_files(replica, 0, 1 << 40, [])
        assert (unit.file.shape, notes) == (IndexFileShape(SLOTS, 4 * SLOTS), [])


@pytest.mark.parametrize("readable_times", [0, 1], ids=["at first", "later"])
def test_a_file_that_cannot_be_read_is_one_finding(
    store: IndexedStore, readable_times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.path.write_bytes(store.content)
    opened: list[str] = []
    really_open = builtins.open

    def failing(file: object, *args: object, **named: object) -> object:
        if str(file) == str(store.path):
            opened.append(str(file))
            if len(opened) > readable_times:
                raise OSError(errno.EIO, "Input/output error", str(file))
        return really_open(file, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", failing)
    [finding] = derived_findings([store.replica])
    assert (finding.kind, finding.file) == (Kind.UNREADABLE_FILE, f"index/{store.path.name}")
    assert "Input/output error" in finding.sentence


def test_the_neighbours_of_a_file_that_cannot_be_read_are_sound(
    store: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, times = store.keys(), store.times()
    cuts = [next(at for at in range(part, len(keys)) if keys[at][1] != keys[at - 1][1]) for part in (40, 80)]
    store.path.write_bytes(made_file(keys[: cuts[0]], times))
    paths = [store.path.with_name(str(int(store.path.name) + number)) for number in (1, 2)]
    paths[0].write_bytes(made_file(keys[cuts[0] : cuts[1]], times))
    paths[1].write_bytes(made_file(keys[cuts[1] :], times))
    assert derived_findings([store.replica]) == []
    really_open = builtins.open

    def failing(file: object, *args: object, **named: object) -> object:
        if str(file) == str(paths[0]):
            raise OSError(errno.EIO, "Input/output error", str(file))
        return really_open(file, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", failing)
    [finding] = derived_findings([store.replica])
    assert (finding.kind, finding.file) == (Kind.UNREADABLE_FILE, f"index/{paths[0].name}")


def test_a_header_of_zeros_does_not_hide_the_entries(store: IndexedStore) -> None:
    store.content[:INDEX_HEADER_SIZE] = bytes(INDEX_HEADER_SIZE)
    assert store.wrong() == (1, "the header says 0 entries, there is room for 20000")


def test_a_new_file_whose_first_flush_is_under_way_or_was_cut_off_is_not_judged(store: IndexedStore) -> None:
    (store.root / "abort").touch()
    keys, times = store.keys(), store.times()
    half = next(at for at in range(len(keys) // 2, len(keys)) if keys[at][1] != keys[at - 1][1])
    newer = made_file(keys[half:], times)
    newer[:INDEX_HEADER_SIZE] = bytes(INDEX_HEADER_SIZE)
    store.path.with_name(str(int(store.path.name) + 1)).write_bytes(newer)
    store.content = made_file(keys[:half], times)
    assert store.findings() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_any_flipped_bit_is_found(store: IndexedStore, seed: int) -> None:
    random = Random(seed)
    end = entry_offset(store.header.index_count, SLOTS)
    first_entry = entry_offset(1, SLOTS)
    ranges = [range(INDEX_HEADER_SIZE), range(INDEX_HEADER_SIZE, first_entry - 20), range(first_entry, end)]
    at = random.choice(random.choice(ranges))
    store.content[at] ^= 1 << random.randrange(8)
    [finding] = store.findings()
    assert finding.kind is Kind.KEY_INDEX_WRONG
    assert finding.count == 1 or at < INDEX_HEADER_SIZE


@pytest.mark.parametrize("taken", ["index", "commitlog"])
def test_a_file_that_retention_takes_after_pass_1_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    store = IndexedStore(tmp_path, STORES[0])
    path = min((store.root / taken).iterdir())

    def check_later(unit: DerivedUnit) -> Iterator[Finding]:
        path.unlink(missing_ok=True)
        return check(unit)

    monkeypatch.setattr("derived_store.check", check_later)
    assert derived_findings([store.replica]) == []
