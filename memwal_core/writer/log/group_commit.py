"""Writing WAL entries: concurrent callers share one entry, a single caller does not wait.

One caller at a time writes everything that is pending, its own rows and those of callers that came
meanwhile; these wait until their rows are written or it is their turn to write. No timer is involved.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.clock import Clock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    InternalError,
    MemwalError,
)
from memwal_core.memtable import Fragment, MemTable, StoredEntry
from memwal_core.native.casting import no_rows
from memwal_core.redaction import harmless
from memwal_core.storage.limits import MAX_ENTRY_ROWS_BYTES
from memwal_core.wal import WalAppender, WalEntry
from memwal_core.writer import stats
from memwal_core.writer.log.replay import rows_of_entry, stored_entry
from memwal_core.writer.state import RegionState

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PutReceipt:
    """The result of one put.

    Attributes:
        wal_id: WAL entry that has them; None while they are only in memory.
    """

    rows: int
    generation: int
    wal_id: int | None

    @property
    def durable(self) -> bool:
        """Whether the rows survive a crash."""
        return self.wal_id is not None or self.rows == 0


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    fragment: Fragment
    generation: int
    future: Future[PutReceipt]


class GroupCommit:
    """Writes rows to the WAL; no other path exists. Safe to call from several threads.

    The appender is used only under the turn.
    """

    def __init__(self, state: RegionState, appender: WalAppender, clock: Clock) -> None:
        self._state = state
        self._appender = appender
        self._clock = clock
        self._turn = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._settled = threading.Condition()
        self._has_leader = False
        state.ownership.on_end(self._fail_waiting)

    @property
    def last_wal_id(self) -> int:
        """The last WAL entry known to exist."""
        return self._appender.last_wal_id

    @property
    def has_waiting(self) -> bool:
        """Whether a caller waits for rows to become durable."""
        return bool(self._waiting)

    def enlist(self, fragment: Fragment, generation: int) -> Future[PutReceipt]:
        """Promise an outcome for rows just added; call under the state's lock.

        The future cannot be cancelled and is settled exactly once, when a WAL write that covers the rows has
        succeeded or failed.
        """
        future: Future[PutReceipt] = Future()
        future.set_running_or_notify_cancel()
        self._waiting.append(_Ticket(fragment, generation, future))
        return future

    def commit(self, future: Future[PutReceipt]) -> PutReceipt:
        """Wait until enlisted rows are durable, writing them if no other caller does.

        Raises:
            FencedError: Another writer owns the region.
            ConflictError: A predecessor wrote late, in an older schema; the writer has stopped. Open it again.
            CommitUnknownError: Storage did not answer, or refused; the rows stay pending.
            CorruptionError: The region contradicts itself; the writer has stopped.
            InternalError: An impossible state; the writer has stopped.
        """
        with self._settled:
            # A caller whose rows are written does not wait for the turn: that would take one more write.
            self._settled.wait_for(lambda: future.done() or not self._has_leader)
            if future.done():
                return future.result()
            self._has_leader = True
        try:
            taken: Sequence[_Ticket] = ()
            error: MemwalError | None = None
            with self._turn:
                if any(ticket.future is future for ticket in self._waiting):
                    taken, error = self._write()
            self._settle(taken, error)
        finally:
            with self._settled:
                self._has_leader = False
                self._settled.notify_all()
        return future.result()

    def write_pending(self) -> None:
        """Write everything that is pending and verify the epoch if that is due; errors as for ``commit``."""
        with self._turn:
            taken, error = self._write()
        self._settle(taken, error)
        if error is not None:
            raise error

    def write_fence(self) -> None:
        """Take the next position without rows, which stops an older writer at its next write.

        After ``CommitUnknownError``, or ``ConflictError`` (a predecessor wrote late, in an older schema), claim the
        region again.
        """
        with self._turn:
            appended = self._appender.append_fence()
            late = [(entry, self._late_rows(entry)) for entry in appended.late]
            with self._state.lock:
                active = self._state.queue.active
                for entry, rows in late:
                    active.add_replayed(rows, stored_entry(entry, rows))
                fence = StoredEntry(appended.wal_id, 0, appended.size_bytes, attempt=appended.attempt)
                active.add_replayed(no_rows(self._state.schema), fence)

    def _write(self) -> tuple[Sequence[_Ticket], MemwalError | None]:
        """Write what is pending now; return whose rows that covers, and what went wrong."""
        with self._state.lock:
            taken, self._waiting = self._waiting, []
            batches = self._state.queue.unstored()
        try:
            with self._state.lock:
                self._state.queue.open_ranges()  # An error may have kept the write before this one from it.
            self._state.ownership.require()
            if batches:
                self._state.ownership.verify_ahead()
            for memtable, fragments in batches:
                for together in _in_entries(fragments):
                    self._append(memtable, together)
            self._state.ownership.verify_if_due()
        except CommitUnknownError as error:
            self._state.meters.count(stats.WAL_FAILURES)
            return taken, error
        except (FencedError, ConflictError, CorruptionError, InternalError) as error:
            return taken, self._state.ownership.end(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, an entry may be on the store
            self._state.meters.count(stats.WAL_FAILURES)
            return taken, _without_memory() if isinstance(error, MemoryError) else _unfinished(error)
        except BaseException:
            # The thread is being stopped during a write: other callers must not wait for ever.
            self._settle(taken, _interrupted())
            raise
        return taken, None

    def _append(self, memtable: MemTable, fragments: Sequence[Fragment]) -> None:
        started = self._clock.monotonic()
        noted = memtable.last_wal_id
        appended = self._appender.append(_together(fragments), memtable.generation, noted_wal_id=noted)
        late = [(entry, self._late_rows(entry)) for entry in appended.late]
        with self._state.lock:
            for entry, rows in late:
                memtable.add_replayed(rows, stored_entry(entry, rows))
            memtable.mark_flushed(len(fragments), appended.wal_id, appended.size_bytes, appended.attempt)
            self._appender.noted(appended.wal_id)
            self._state.queue.open_ranges()
            self._state.pending_since = started if self._state.queue.unstored() else None
            self._state.changed.notify_all()
        meters = self._state.meters
        meters.count(stats.WAL_ENTRIES)
        meters.count(stats.WAL_BYTES, appended.size_bytes)
        meters.count(stats.WAL_LATE_ENTRIES, len(late))
        meters.record(stats.WAL_GROUP_PUTS, len(fragments))
        meters.record(stats.WAL_DURATION, self._clock.monotonic() - started)

    def _late_rows(self, entry: WalEntry) -> pa.Table:
        _log.info(
            "late entry of a predecessor replayed [region_id=%s, wal_id=%d, writer_epoch=%d, rows=%d]",
            self._state.ownership.region_id,
            entry.wal_id,
            entry.writer_epoch,
            entry.rows.num_rows,
        )
        try:
            return rows_of_entry(entry, self._state.shape, self._state.ownership.region_id)
        except CorruptionError as error:
            raise ConflictError(
                "a fenced predecessor wrote late, in a schema that the table no longer has",
                remedy="open the region again, which flushes those rows first, and put the same rows again",
                **error.facts,
            ) from error

    def _fail_waiting(self, error: MemwalError) -> None:
        with self._state.lock:
            taken, self._waiting = self._waiting, []
            self._state.changed.notify_all()
        self._settle(taken, error)

    def _settle(self, tickets: Sequence[_Ticket], error: MemwalError | None) -> None:
        _settle(tickets, error)
        with self._settled:
            self._settled.notify_all()


def _in_entries(fragments: Sequence[Fragment]) -> Iterator[Sequence[Fragment]]:
    """Divide fragments into WAL entries that can be read again; each of them fits into one."""
    first = size = 0
    for number, fragment in enumerate(fragments):
        if number > first and size + fragment.size_bytes > MAX_ENTRY_ROWS_BYTES:
            yield fragments[first:number]
            first, size = number, 0
        size += fragment.size_bytes
    yield fragments[first:]


def _together(fragments: Sequence[Fragment]) -> pa.Table:
    return fragments[0].rows if len(fragments) == 1 else pa.concat_tables(fragment.rows for fragment in fragments)


def _settle(tickets: Sequence[_Ticket], error: MemwalError | None) -> None:
    for ticket in tickets:
        if error is not None:
            ticket.future.set_exception(error)
        else:
            rows = ticket.fragment.rows.num_rows
            ticket.future.set_result(PutReceipt(rows, ticket.generation, ticket.fragment.wal_id))


def _without_memory() -> CommitUnknownError:
    return CommitUnknownError(
        "there is not enough memory to write a WAL entry; its rows may or may not be durable",
        remedy="give the process more memory, then put the same rows again, or call sync()",
    )


def _unfinished(error: Exception) -> CommitUnknownError:
    unknown = CommitUnknownError(
        "the write of a WAL entry ended in an error that it is not known for; its rows may or may not be durable",
        remedy="put the same rows again, or call sync(); report the error if it comes again",
        error=type(error).__name__,
        cause=error.what if isinstance(error, MemwalError) else str(error),
    )
    unknown.__cause__ = harmless(error)
    return unknown


def _interrupted() -> CommitUnknownError:
    return CommitUnknownError(
        "the thread that wrote the WAL entry was interrupted; its rows may or may not be durable",
        remedy="put the same rows again, or call sync()",
    )
