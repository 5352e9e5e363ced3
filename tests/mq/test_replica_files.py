from pathlib import Path

import pytest

from dledger.entry import ENTRY_HEADER_SIZE, EntryKind, blank, seal_entries
from mq.replica_files import ReplicaFiles, ReplicaFilesError, judge, read_replica

FILE_SIZE = 1000


class Replica:
    """Entries laid out in files of FILE_SIZE, as members write them."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "dledger-n0" / "data"
        self.data.mkdir(parents=True)
        self.log = b""
        self.index = self.chain = 0
        self.positions: list[int] = []

    def append(self, term: int, *bodies: bytes, kind: EntryKind = EntryKind.MESSAGE) -> None:
        for body in bodies:
            size = ENTRY_HEADER_SIZE + len(body)
            left = FILE_SIZE - len(self.log) % FILE_SIZE
            if left < size + 8:
                self.log += blank(left)
            buffers, self.chain = seal_entries([body], [len(self.log)], self.index, term, kind, self.chain)
            self.positions.append(len(self.log))
            self.log += b"".join(buffers)
            self.index += 1

    def write(self) -> Path:
        whole = self.log + bytes(-len(self.log) % FILE_SIZE)
        for begin in range(0, len(whole), FILE_SIZE):
            (self.data / f"{begin:020}").write_bytes(whole[begin : begin + FILE_SIZE])
        return self.data.parent.parent


def three(tmp_path: Path) -> list[Replica]:
    replicas = [Replica(tmp_path / f"n{i}") for i in range(3)]
    for replica in replicas:
        replica.append(1, b"no-op", kind=EntryKind.NO_OP)
        replica.append(1, *(b"message %d " % i * 10 for i in range(20)))
        replica.append(3, b"no-op", kind=EntryKind.NO_OP)
        replica.append(3, *(b"later %d " % i * 10 for i in range(10)))
    return replicas


def test_equal_replicas_are_found_equal(tmp_path: Path) -> None:
    replicas = three(tmp_path)
    verdict = judge([replica.write() for replica in replicas])
    assert verdict.faults == []
    assert verdict.common_index == 31
    for report in verdict.replicas:
        assert (report.begin_index, report.end_index, report.end_term) == (0, 31, 3)
        assert report.message_count == 30
        assert report.term_begins == {1: 0, 3: 21}
        assert report.chain_crc == replicas[0].chain
        assert list(report.positions) == replicas[0].positions
    assert len(replicas[0].log) > 3 * FILE_SIZE, "several files and blanks were read"


def test_a_replica_that_is_behind_shares_what_it_has(tmp_path: Path) -> None:
    replicas = three(tmp_path)
    replicas[1].append(3, b"one more")
    verdict = judge([replica.write() for replica in replicas])
    assert verdict.faults == []
    assert verdict.common_index == 31


def test_a_flipped_bit_in_any_replica_is_named(tmp_path: Path) -> None:
    replicas = three(tmp_path)
    at = replicas[2].positions[7] + ENTRY_HEADER_SIZE + 3
    log = bytearray(replicas[2].log)
    log[at] ^= 1
    replicas[2].log = bytes(log)
    verdict = judge([replica.write() for replica in replicas])
    assert verdict.replicas[2].fault.startswith("entry 7 at pos")
    assert verdict.replicas[2].end_index == 6
    assert len(verdict.faults) == 1


def test_a_fork_is_named_even_where_each_chain_is_sound(tmp_path: Path) -> None:
    replicas = three(tmp_path)
    replicas[0].append(4, b"one way")
    replicas[1].append(4, b"another")
    replicas[2].append(4, b"one way")
    directories = [replica.write() for replica in replicas]
    verdict = judge(directories)
    assert verdict.common_index == 31
    assert "part behind index 31" in verdict.faults[0]
    assert judge(directories, committed_index=31).faults == [], "what is not committed may differ"


def test_an_acknowledged_record_must_lie_where_the_answer_said(tmp_path: Path) -> None:
    replicas = three(tmp_path)
    directories = [replica.write() for replica in replicas]
    phy_offset = replicas[0].positions[5] + ENTRY_HEADER_SIZE
    assert judge(directories, acknowledged={phy_offset: b"message 4"}).faults == []
    for acknowledged in ({phy_offset: b"message 5"}, {phy_offset + 1: b"message 4"}, {10**9: b"x"}):
        verdict = judge(directories, acknowledged=acknowledged)
        assert list(verdict.missing) == list(acknowledged)
        assert "1 acknowledged records are missing" in verdict.faults[0]


def test_a_replica_that_ends_before_the_committed_index_is_at_fault(tmp_path: Path) -> None:
    verdict = judge([replica.write() for replica in three(tmp_path)], committed_index=40)
    assert all("ends at index 31, before 40" in replica.fault for replica in verdict.replicas)


def test_a_log_whose_first_files_are_gone_is_read_from_its_anchor(tmp_path: Path) -> None:
    (replica, *_) = three(tmp_path)
    directory = replica.write()
    (replica.data / f"{0:020}").unlink()
    report = read_replica(ReplicaFiles(directory))
    assert report.fault == ""
    assert report.begin_index == next(i for i, pos in enumerate(replica.positions) if pos >= FILE_SIZE)
    assert (report.end_index, report.chain_crc) == (31, replica.chain)


def test_a_directory_that_is_no_replica_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReplicaFilesError, match="no replica"):
        ReplicaFiles(tmp_path)
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    with pytest.raises(ReplicaFilesError, match="no data file"):
        ReplicaFiles(tmp_path)
    (tmp_path / "dledger-n0" / "data" / f"{0:020}").write_bytes(bytes(100))
    (tmp_path / "dledger-n0" / "data" / f"{100:020}").write_bytes(bytes(99))
    with pytest.raises(ReplicaFilesError, match="another size"):
        ReplicaFiles(tmp_path)
