"""Offsets of a broadcasting consumer: Java's file, and what is left of it after each way to end."""

import asyncio
import fcntl
import logging
import threading
from pathlib import Path

import pytest

from mqclient.consumer.local_file_offset_store import LocalFileOffsetStore
from mqclient.errors import LocalOffsetsError
from mqclient.message_queue import MessageQueue

# Written by LocalFileOffsetStore of these versions, for three queues.
RECORDED = Path(__file__).resolve().parent.parent / "golden" / "client_offsets"
VERSIONS = ["4.9.8", "5.5.0"]
QUEUES = [MessageQueue("T", "b", queue_id) for queue_id in range(3)]
RECORDED_OFFSETS = [105, 6, 7]
CLIENT_ID = "192.0.2.1@DEFAULT"


def store_in(directory: Path) -> LocalFileOffsetStore:
    return LocalFileOffsetStore(directory, CLIENT_ID, "g")


def group_directory(directory: Path) -> Path:
    group = directory / CLIENT_ID / "g"
    group.mkdir(parents=True, exist_ok=True)
    return group


def recorded(version: str) -> bytes:
    return (RECORDED / f"offsets-{version}.json").read_bytes()


async def keep(directory: Path, *states: dict[MessageQueue, int]) -> None:
    store = store_in(directory)
    await store.load()
    for offsets in states:
        assert await store.commit(offsets) == {}
    await store.close()


async def kept(directory: Path) -> list[int | None]:
    store = store_in(directory)
    await store.load()
    offsets = [await store.read(queue) for queue in QUEUES]
    await store.close()
    return offsets


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_javas_is_read_where_java_keeps_it(tmp_path: Path, version: str) -> None:
    (group_directory(tmp_path) / "offsets.json").write_bytes(recorded(version))
    assert asyncio.run(kept(tmp_path)) == RECORDED_OFFSETS


def test_the_home_directory_holds_it_unless_another_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = LocalFileOffsetStore(None, CLIENT_ID, "g").path
    assert path == tmp_path / ".rocketmq_offsets" / CLIENT_ID / "g" / "offsets.json"


def test_a_file_is_written_as_java_writes_it(tmp_path: Path) -> None:
    def entries(data: bytes) -> list[bytes]:
        begin, members, end = data.partition(b"{\n\t\t{")[0], data[18:-5], data[-5:]
        assert (begin, end) == (b'{\n\t"offsetTable":', b"\n\t}\n}")
        return sorted(members.split(b","))

    asyncio.run(keep(tmp_path, dict(zip(QUEUES, RECORDED_OFFSETS, strict=True))))
    written = (group_directory(tmp_path) / "offsets.json").read_bytes()
    assert entries(written) == entries(recorded("5.5.0"))  # Java's entries lie in the order of its hash map


def test_the_state_before_the_last_one_is_the_backup(tmp_path: Path) -> None:
    asyncio.run(keep(tmp_path, {QUEUES[0]: 1, QUEUES[1]: 2}, {QUEUES[0]: 3}))
    group = group_directory(tmp_path)
    assert asyncio.run(kept(tmp_path)) == [3, 2, None]
    assert sorted(path.name for path in group.iterdir()) == ["offsets.json", "offsets.json.bak"]
    (group / "offsets.json").unlink()
    assert asyncio.run(kept(tmp_path)) == [1, 2, None]


def test_queues_that_are_not_read_now_keep_their_offsets(tmp_path: Path) -> None:
    asyncio.run(keep(tmp_path, {QUEUES[0]: 1}))
    asyncio.run(keep(tmp_path, {QUEUES[1]: 2}))
    assert asyncio.run(kept(tmp_path)) == [1, 2, None]


@pytest.mark.parametrize("damage", [b"", b"\n", b'{"offsetTable":{{"bro', b'{"offsetTable":[]}', b"\xff"])
def test_a_damaged_file_is_passed_over_for_its_backup_and_never_becomes_one(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    group = group_directory(tmp_path)
    (group / "offsets.json").write_bytes(damage)
    (group / "offsets.json.bak").write_bytes(recorded("5.5.0"))
    assert asyncio.run(kept(tmp_path)) == RECORDED_OFFSETS
    assert ("offsets taken from the backup" in caplog.text) == bool(damage.strip())
    asyncio.run(keep(tmp_path, {QUEUES[0]: 200}))
    assert (group / "offsets.json.bak").read_bytes() == recorded("5.5.0")
    assert asyncio.run(kept(tmp_path)) == [200, 6, 7]


@pytest.mark.parametrize("backup", [None, b"", b"{{{"])
def test_damage_without_a_sound_backup_is_an_error_that_names_the_file(
    tmp_path: Path, backup: bytes | None
) -> None:
    group = group_directory(tmp_path)
    (group / "offsets.json").write_bytes(b'{"offsetTable":{{"bro')
    if backup is not None:
        (group / "offsets.json.bak").write_bytes(backup)
    for _ in range(2):  # the first try must leave no lock behind
        with pytest.raises(LocalOffsetsError, match=r"offsets\.json: .*repair the file, or remove it"):
            asyncio.run(kept(tmp_path))


def test_a_first_write_that_ended_before_its_first_byte_left_nothing(tmp_path: Path) -> None:
    (group_directory(tmp_path) / "offsets.json").write_bytes(b"")
    assert asyncio.run(kept(tmp_path)) == [None, None, None]


def test_an_offset_below_0_is_javas_word_for_none(tmp_path: Path) -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:-1}}'
    (group_directory(tmp_path) / "offsets.json").write_bytes(text)
    assert asyncio.run(kept(tmp_path)) == [None, None, None]


@pytest.mark.parametrize("step", ["write", "backup", "rename"])
def test_a_state_is_left_wherever_a_write_ends(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk or a crash at each step of the second write: the first state is there, and the next write works."""

    async def story() -> None:
        store = store_in(tmp_path)
        await store.load()
        await store.commit({QUEUES[0]: 1})
        with monkeypatch.context() as patch:
            fail_at(patch, step)
            assert set(await store.commit({QUEUES[0]: 2})) == {QUEUES[0]}
        await store.close()
        assert await kept(tmp_path) == [1, None, None]
        await keep(tmp_path, {QUEUES[0]: 3})
        assert await kept(tmp_path) == [3, None, None]

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert "offsets not kept" in caplog.text


def fail_at(patch: pytest.MonkeyPatch, step: str) -> None:
    real_replace = Path.replace

    def fsync(fd: int) -> None:
        raise OSError("told to fail")

    def replace(path: Path, target: Path) -> Path:
        if target.suffix == (".bak" if step == "backup" else ".json"):
            raise OSError("told to fail")
        return real_replace(path, target)

    if step == "write":
        patch.setattr("os.fsync", fsync)
    else:
        patch.setattr(Path, "replace", replace)


def test_a_second_consumer_with_the_same_file_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = store_in(tmp_path), store_in(tmp_path)
        await first.load()
        with pytest.raises(LocalOffsetsError, match="give each its own instance_name"):
            await second.load()
        await first.close()
        await second.load()
        await second.close()

    asyncio.run(story())


def test_a_load_that_is_given_up_holds_the_file_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, begun, go_on, locked = fcntl.flock, threading.Event(), threading.Event(), threading.Event()

    def late(fd: int, operation: int) -> None:
        begun.set()
        go_on.wait(20)
        flock(fd, operation)
        locked.set()

    async def story() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("fcntl.flock", late)
            loading = asyncio.create_task(store_in(tmp_path).load())
            assert await asyncio.to_thread(begun.wait, 20)
            loading.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await loading
            assert await asyncio.to_thread(locked.wait, 20)
        assert await kept(tmp_path) == [None, None, None]

    asyncio.run(story())


def test_a_second_load_is_refused_and_the_first_one_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        store = store_in(tmp_path)
        await store.load()
        with pytest.raises(LocalOffsetsError):
            await store.load()
        await store.commit({QUEUES[0]: 1})
        await store.close()
        assert await kept(tmp_path) == [1, None, None]

    asyncio.run(story())


def test_a_directory_that_cannot_be_made_is_an_error_that_names_it_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / CLIENT_ID).write_text("a file")
    with pytest.raises(LocalOffsetsError, match=f"{CLIENT_ID}.*local_offset_store_dir"):
        asyncio.run(kept(tmp_path))


def test_where_nothing_can_be_written_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that cannot be kept would only show after the next start, as messages that come again."""
    (group_directory(tmp_path) / "offsets.json").write_bytes(recorded("5.5.0"))
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(LocalOffsetsError, match="local_offset_store_dir"):
        asyncio.run(kept(tmp_path))
    monkeypatch.undo()
    assert asyncio.run(kept(tmp_path)) == RECORDED_OFFSETS


def test_a_user_without_a_home_directory_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(LocalOffsetsError, match="local_offset_store_dir"):
        LocalFileOffsetStore(None, CLIENT_ID, "g")


@pytest.mark.slow
def test_as_many_queues_as_are_written_are_read(tmp_path: Path) -> None:
    queues = {MessageQueue("T", "b", queue_id): queue_id for queue_id in range(15_000)}

    async def last() -> int | None:
        store = store_in(tmp_path)
        await store.load()
        await store.close()
        return await store.read(MessageQueue("T", "b", 14_999))

    asyncio.run(keep(tmp_path, queues))
    assert asyncio.run(last()) == 14_999
