"""Reads entries of a group's log from one of its members, proves each, and gives them as runs.

Each answer begins with the chain before it, and entries are verified as a member verifies what it is pushed. So the
first entry proves what was read before it, and the last one that the range is the one which was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from dledger.entry import ENTRY_HEADER_SIZE, RangeCorruptError, parse_header, verify_entries
from pyspark_dledger.wire.cluster_access import ClusterAccess, check_not_refused
from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.entry_options import LogOptions
from pyspark_dledger.wire.patience import NotNowError, Patience
from pyspark_dledger.wire.proof import Proof
from pyspark_dledger.wire.read_errors import DataLossError, LogRewrittenError, PullRefusedError
from remoting.blocking_connection import BlockingConnection
from remoting.bodies.bodies import MASTER_ID, ClusterInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingBodyError, RemotingError, RemotingHeaderError
from remoting.frame.command import RemotingCommand
from remoting.headers.admin_headers import GetEntriesRequestHeader, GetEntriesResponseHeader
from remoting.headers.headers import decode, to_ext_fields
from verify.log.entry_scan import Run, up_to

_BYTES_MAX: Final = 1024 * 1024
_TIMEOUT_S: Final = 10.0
_REFUSED: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})


@dataclass(frozen=True, slots=True)
class LogTask:
    """A part of a planned range. `before`, `last`: the entry in front of it, and its last one, where they are known."""

    part: LogRange
    group_uuid: str
    before: Proof | None
    last: Proof | None


class LogReader:
    """Reads one part. `runs` is walked through once."""

    def __init__(self, options: LogOptions, task: LogTask) -> None:
        self._options = options
        self._task = task
        self._where = f"the log of {task.part.broker}"
        self._next = task.part.start
        self._chain = task.before.chain if task.before is not None else None
        self._connection: BlockingConnection | None = None
        self._turn = 0  # of the members

    def runs(self) -> Iterator[Run]:
        """Raises ReadError."""
        patience = Patience(self._options.timeout_ms)
        end = self._task.part.end
        while self._next < end:
            try:
                run = self._run()
            except (RemotingError, NotNowError, RangeCorruptError) as error:
                # A member may be away, behind, or damaged: another one has the same entries.
                self.close()
                self._turn += 1
                patience.pause(f"{self._where}: nothing came from entry {self._next} on", error)
                continue
            patience.refresh()
            yield run
        last = self._task.last
        if last is not None and self._chain != last.chain:
            raise LogRewrittenError(
                f"{self._where}: {last} was committed, and its chain is {self._chain} now"
            )

    def _run(self) -> Run:
        begin, end = self._next, self._task.part.end
        told, entries = self._entries(begin)
        if told.group_uuid != self._task.group_uuid:
            read, now = self._task.group_uuid[:16], told.group_uuid[:16]
            raise LogRewrittenError(f"{self._where}: the query has read group {read}, and this is {now}")
        if begin < told.ledger_begin_index:
            lost = min(told.ledger_begin_index, end)
            now = f"the log begins at {told.ledger_begin_index} now"
            advice = f"{now}. Read sooner, or keep it longer (fileReservedTime)"
            raise DataLossError("expired", self._where, begin, lost, advice)
        if not entries:
            raise NotNowError(f"{self._address} knows no commit above {told.committed_index}")
        if self._chain is not None and told.previous_chain != self._chain:
            raise LogRewrittenError(
                f"{self._where}: entry {begin - 1} had chain {self._chain} and has {told.previous_chain} now"
            )
        found = verify_entries(
            entries, first_index=begin, first_pos=told.first_pos, prev_chain=told.previous_chain
        )
        run = Run(
            first_index=begin,
            last_index=found.last_index,
            first_pos=told.first_pos,
            next_pos=found.next_pos,
            offsets=found.offsets,
            record_shift=ENTRY_HEADER_SIZE,
            terms=found.terms,
            kinds=found.kinds,
            buffer=entries,
        )
        wanted = up_to(run, end - 1)
        assert wanted is not None, "the first entry is within the range"
        self._next = wanted.last_index + 1
        self._chain = parse_header(wanted.last_header).chain_crc
        return wanted

    def _entries(self, begin: int) -> tuple[GetEntriesResponseHeader, bytes]:
        header = GetEntriesRequestHeader(begin_index=begin, max_bytes=_BYTES_MAX)
        answer = self._connected().call(RequestCode.GET_ENTRIES, to_ext_fields(header), _TIMEOUT_S)
        said = f"{self._address} answers {answer.code} {answer.remark or ''}"
        if answer.code in _REFUSED:
            raise PullRefusedError(f"{self._where}: {said}")
        if answer.code != ResponseCode.SUCCESS:
            raise NotNowError(said)
        try:
            return decode(GetEntriesResponseHeader, answer.ext_fields), bytes(answer.body)
        except RemotingHeaderError as error:
            raise NotNowError(f"{self._address}: {error}") from error

    @property
    def _address(self) -> str:
        return self._connection.address if self._connection is not None else "no broker"

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            members = member_addresses(self._options, self._task.part.broker)
            self._connection = self._options.cluster.connection(members[self._turn % len(members)])
        return self._connection

    def close(self) -> None:
        """What is asked next connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def member_addresses(options: LogOptions, broker: str) -> list[str]:
    """Of a group, in the order in which they are asked. Raises NotNowError, AccessError."""
    troubles = []
    for address in options.cluster.namesrv:
        try:
            table = _cluster_info(options.cluster, address).broker_addr_table
        except (RemotingError, RemotingBodyError, NotNowError) as error:
            troubles.append(str(error))
            continue
        if broker in table and table[broker].broker_addrs:
            members = sorted(table[broker].broker_addrs.items(), reverse=options.followers_first)
            # The leader is registered twice: as 0, and with an id of its own.
            leader = table[broker].broker_addrs.get(MASTER_ID)
            return list(dict.fromkeys(at for number, at in members if number == MASTER_ID or at != leader))
        troubles.append(f"{address} knows no broker {broker}")
    raise NotNowError("; ".join(troubles))


def _cluster_info(cluster: ClusterAccess, address: str) -> ClusterInfo:
    with closing(cluster.connection(address)) as connection:
        answer: RemotingCommand = connection.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}, _TIMEOUT_S)
    check_not_refused(address, answer)
    if answer.code != ResponseCode.SUCCESS:
        raise NotNowError(f"{address} answers {answer.code} {answer.remark or ''}")
    return ClusterInfo.decode(answer.body)
