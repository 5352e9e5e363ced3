"""What is kept of where Java's queues ended."""

from pathlib import Path

import msgpack
import pytest
from store_group import StoreGroup, message

from disk.real_disk import RealDisk
from store.errors import StoreDamagedError
from store.java.java_import import JavaImport
from store.layout.consume_queue_unit import CQ_UNIT
from store.store_config import StoreConfig

pytestmark = pytest.mark.slow


KEPT = (3, [(b"Expired", 3, 0, 623), (b"T", 0, 0, 9)])


def kept_by(tmp_path: Path) -> tuple[JavaImport, Path]:
    directory = tmp_path / "dledger-n0" / "pydledger"
    directory.mkdir(parents=True)
    config = StoreConfig(
        store_path_root_dir=str(tmp_path), ledger_directory=str(directory.parent), store_host=bytes(8)
    )
    return JavaImport(RealDisk(), config), directory / "java-queues"


def test_what_is_kept_of_javas_queues_is_never_read_otherwise(tmp_path: Path) -> None:
    queues = tmp_path / "consumequeue/Expired/3"
    queues.mkdir(parents=True)
    (queues / f"{10_000:020}").write_bytes((CQ_UNIT.pack(48, 200, 0) * 123).ljust(10_000, b"\0"))
    java_import, path = kept_by(tmp_path)
    (tmp_path / "dledger-n0" / "currterm").write_text("voteLeader=n0\ncurrTerm=3\n")
    java_import.look()
    assert java_import._kept() == (3, [(b"Expired", 3, 0, 623)])
    sound = path.read_bytes()
    for at in range(len(sound)):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(StoreDamagedError, match="java-queues"):
                java_import._kept()


def test_what_an_earlier_release_kept_of_javas_queues_is_read(tmp_path: Path) -> None:
    java_import, path = kept_by(tmp_path)
    path.write_bytes(msgpack.packb(KEPT))
    assert java_import._kept() == KEPT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1junk",
        b"PyDJ\0\0\0\0junk",
        msgpack.packb([3]),
        msgpack.packb(["x", []]),
        msgpack.packb([True, 5]),
    ],
)
def test_a_member_leads_long_after_the_import_with_a_damaged_file_of_javas_queues(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    member = group.lead()
    member.put(message())
    group.settle()
    member.stop()
    (group.root() / "dledger-n0/pydledger/java-queues").write_bytes(content)
    group.start()
    assert group.lead().put(message()).queue_offsets == [1]
    assert "nothing is known of offsets committed under Java" in caplog.text
