"""Writing to a table: every row goes to the one region that its region value names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.errors import ConflictError, InvalidRequestError, MemwalError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.ids import RegionId
from memwal_core.native.arrow_input import as_table
from memwal_core.region import FlushedGeneration
from memwal_core.region.spec import RegionValue
from memwal_core.settings.writer import Takeover
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.writer.admission.memory import MemoryBudget
from memwal_core.writer.admission.validate import conform
from memwal_core.writer.claim.process import OwnProcess
from memwal_core.writer.flushing.flush_queue import RETRYABLE
from memwal_core.writer.log.group_commit import PutReceipt
from memwal_core.writer.other_specs import OtherSpecs
from memwal_core.writer.region_writer import RegionWriter
from memwal_core.writer.schema_watch import SchemaWatch
from memwal_core.writer.stats import WriterStats
from memwal_core.writer.table_context import TableContext

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

InputCheck = Callable[[pa.Table], None]
"""Examines a batch in the table's schema; raises ``InvalidRequestError`` to refuse it whole."""


@dataclass(frozen=True, slots=True)
class TableReceipt:
    """The result of one put.

    Attributes:
        regions: Region -> receipt of its rows.
        rows_left: Rows of regions that ``accept`` leaves to other writers.
    """

    regions: Mapping[RegionId, PutReceipt]
    rows_left: int

    @property
    def rows(self) -> int:
        """Rows taken over all regions."""
        return sum(receipt.rows for receipt in self.regions.values())


@dataclass(frozen=True, slots=True)
class _Begun:
    futures: Mapping[RegionId, Future[PutReceipt]]
    left: int


class TableWriter:
    """Routes batches to the regions of one spec and writes the regions concurrently. Safe to call from several threads.

    Regions are claimed when their first row comes. Several table writers must own different regions:
    ``accept`` says which, and ``takeover`` what happens where they meet.

    When the base table's schema changes, the rows written so far are flushed in their schema and the
    regions are claimed again in the new one, between two batches.
    """

    @classmethod
    def open(  # noqa: PLR0913  (the components of a writer, all optional)
        cls,
        table: BaseTable,
        *,
        spec_id: int | None = None,
        accept: Callable[[RegionValue], bool] | None = None,
        takeover: Takeover | str = Takeover.FAIL,
        check: InputCheck | None = None,
        executor: Executor | None = None,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> Self:
        """Prepare to write; regions are claimed when their first row comes.

        Args:
            table: The base table, whose settings the writer has; it needs a primary key and a MemWAL index.
            spec_id: The region spec to follow; may be omitted if the table has exactly one.
            accept: Which region values are this writer's; all if None.
            takeover: Whether a region whose writer seems alive is left alone with an error (``fail``)
                or claimed, which stops that writer (``fence``). A writer that was closed is not
                alive; one that crashed seems so for ``takeover_quiet_s``.
            check: Examines each batch to put and raises to refuse it whole, for example by an expectation
                suite (``memwal_core.quality.input_suite.arrow_check``); none if None.
            executor: Writes the regions of a batch, and ends with this writer; a thread for each of
                ``max_open_regions`` if None.
            failpoints: As for ``RegionWriter.open``.

        Raises:
            InvalidRequestError: The table cannot be written, the spec does not exist, or ``takeover`` is neither.
        """
        if takeover not in set(Takeover):
            raise InvalidRequestError(
                "there is no such way to take regions over",
                remedy="pass one of the known ones",
                takeover=takeover,
                known=[each.value for each in Takeover],
            )
        return cls(TableContext(table, spec_id, failpoints), accept, Takeover(takeover), check, executor)

    def __init__(
        self,
        context: TableContext,
        accept: Callable[[RegionValue], bool] | None,
        takeover: Takeover,
        check: InputCheck | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._process = OwnProcess()
        self._check = check
        self._context = context
        self._accept = accept
        self._takeover = takeover
        settings, clock = context.table.settings.writer, context.table.clock
        self._watch = SchemaWatch(
            context.look, settings.schema_check_interval_s, clock, in_background=settings.background_flush
        )
        self._target = context.target(self._watch.shape())
        self._writers: dict[RegionValue, RegionWriter] = {}
        self._unproven: set[RegionValue] = set()  # Claimed, and no other spec was looked at since.
        self._memory = MemoryBudget(settings.max_buffered_bytes)
        self._pool = executor or ThreadPoolExecutor(settings.max_open_regions, thread_name_prefix="memwal-region")
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._running = 0
        self._closing = self._closed = False
        self._lost: list[MemwalError] = []  # What regions told whose close is done.

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"regions={len(self._writers)}"
        return f"{type(self).__name__}({self._context.table.uri!r}, {state})"

    @property
    def is_closed(self) -> bool:
        """Whether the regions were given up, or belong to a process of which this one is a fork."""
        return self._closed or not self._process.is_this

    @property
    def writers(self) -> Mapping[RegionValue, RegionWriter]:
        """The regions claimed so far."""
        return dict(self._writers)

    def put(self, rows: object) -> TableReceipt:
        """Write rows to their regions.

        The batch is checked as a whole before any region receives a row. Regions are independent: if one
        fails, rows of others may be durable already, and putting the batch again is harmless.

        Args:
            rows: The base table's columns in any order; keys must not be NULL. A table, a record batch, or what hands
                over Arrow data, such as a data frame or a stream, which is read whole.

        Returns:
            The receipt of each region. With ``durable_write`` all rows are in the WAL.

        Raises:
            InvalidRequestError: The batch does not fit, or the writer is closed; nothing was written.
            ConflictError: A region seems to have another live writer; see ``takeover``. Or rows wait in regions of
                another spec.
            BackpressureError: A region's flush queue stayed full; put again later.
            FencedError: Another writer took over one of the regions.
            CommitUnknownError: Storage did not answer for one of the regions; put again.
        """
        table = as_table(rows)
        with self._opened():
            try:
                self._follow_schema()
                batch = self._conformed(table)
            except InvalidRequestError:
                if not self._follow_schema(now=True):
                    raise
                batch = self._conformed(table)
            begun = self._begin(batch, RegionWriter.prepared)
        return self._finish(begun)

    def delete(self, keys: object) -> TableReceipt:
        """Delete rows by key in their regions.

        Args:
            keys: The primary key's columns in any order; must not be NULL. Arrow data as for ``put``.

        Returns:
            The receipts of the tombstones; errors as for ``put`` and ``RegionWriter.delete``.
        """
        table = as_table(keys)
        with self._opened():
            try:
                self._follow_schema()
                begun = self._begin_deletes(table)
            except InvalidRequestError:
                if not self._follow_schema(now=True):
                    raise
                begun = self._begin_deletes(table)
        return self._finish(begun)

    def flush(self) -> dict[RegionId, FlushedGeneration]:
        """Flush the MemTables of all claimed regions; errors as for ``RegionWriter.flush``.

        Returns:
            The recorded generations; regions with nothing to flush are missing.
        """
        with self._opened():
            flushing = self._submitted({writer.region_id: writer.flush for writer in self._writers.values()})
        done = self._results(flushing)
        return {region_id: record for region_id, record in done.items() if record is not None}

    def sync(self) -> None:
        """Make all rows put so far durable; errors as for ``RegionWriter.sync``."""
        with self._opened():
            syncing = self._submitted({writer.region_id: writer.sync for writer in self._writers.values()})
        self._results(syncing)

    def run_due(self) -> None:
        """Do the due work of all claimed regions; errors as for ``RegionWriter.run_due``, which says who calls it."""
        with self._opened():
            running = self._submitted({writer.region_id: writer.run_due for writer in self._writers.values()})
        self._results(running)

    def stats(self) -> dict[RegionId, WriterStats]:
        """Return counters and gauges of all claimed regions at this moment."""
        with self._lock:
            return {writer.region_id: writer.stats() for writer in self._writers.values()}

    def close(self) -> None:
        """Make pending rows durable and give up all regions.

        Closing twice is harmless, and tells of lost rows twice; the end of a ``with`` does not repeat what a close has
        told. A fork of the writer's process closes nothing.

        Raises:
            MemwalError: As for ``RegionWriter.close``. Where that may be called again, so may this, and nothing else.
        """
        if not self._process.is_this:
            return
        with self._lock:  # A put must not claim a region that would stay open.
            if self._closed:
                for writer in self._writers.values():
                    writer.close()  # Those with lost rows tell it again.
                return
            self._closing = True
            # None are left of a close that was interrupted while the pool ended, which takes no more.
            left = [writer for writer in self._writers.values() if not writer.is_closed]
            closing = [self._pool.submit(self._close, writer) for writer in left]
            errors = [error for future in closing if (error := future.exception()) is not None]
            for error in errors:
                if error not in self._lost:
                    raise error
            self._pool.shutdown()  # Ends what an earlier close began before it was interrupted, too.
            self._closed = True  # Not before: until then, readers need rows that are in no WAL yet.
            if self._lost:
                raise self._lost[0]

    def _close(self, writer: RegionWriter) -> None:
        try:
            writer.close()
        except MemwalError as error:
            if writer.is_closed:
                self._lost.append(error)  # Here, because whoever asked for the close may have been interrupted.
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._closed:
            self.close()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Hold the lock of an open writer."""
        self._process.require(table=self._context.table.uri)  # A fork may find the lock taken for ever.
        with self._lock:
            self._require_open()
            yield

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidRequestError("the writer is closed", remedy="open a new writer", table=self._context.table.uri)
        if self._closing:
            # Some regions may have been given up before another one failed.
            raise InvalidRequestError(
                "the writer is being closed",
                remedy="call close again, and open a new writer for more rows",
                table=self._context.table.uri,
            )

    def _conformed(self, rows: pa.Table) -> pa.Table:
        batch = conform(rows, self._target.shape.schema, self._target.shape.key)
        if self._check is not None:
            self._check(batch)
        return batch

    def _begin_deletes(self, keys: pa.Table) -> _Begun:
        shape = self._target.shape
        others = [name for name in self._target.router.sources if name not in shape.key]
        if others:
            raise InvalidRequestError(
                "rows cannot be deleted by key: columns outside of the key decide their regions",
                remedy="call delete of the region's own writer, which `writers` has by region value, or ingest a batch "
                "with a delete column",
                columns=others,
                key=list(shape.key),
            )
        key_schema = pa.schema([field for field in shape.schema if field.name in shape.key])
        return self._begin(conform(keys, key_schema, shape.key), RegionWriter.prepared_deletes)

    def _begin(self, batch: pa.Table, prepared: Callable[[RegionWriter, pa.Table], pa.Table]) -> _Begun:
        """Route a batch, check the share of every region, then hand them to the regions; call under the lock."""
        own, left = {}, 0
        for value, part in self._target.router.route(batch):
            if self._accept is None or self._accept(value):
                own[value] = part
            else:
                left += part.num_rows
        self._claim(value for value in own if value not in self._writers)
        ready = [(writer, prepared(writer, part)) for value, part in own.items() for writer in [self._writers[value]]]
        return _Begun(self._submitted({writer.region_id: partial(writer.write, part) for writer, part in ready}), left)

    def _finish(self, begun: _Begun) -> TableReceipt:
        return TableReceipt(self._results(begun.futures), begun.left)

    def _submitted(self, work: Mapping[RegionId, Callable[[], Result]]) -> Mapping[RegionId, Future[Result]]:
        """Begin work of some regions, which keeps them open until ``_results``; call under the lock."""
        futures = {region_id: self._pool.submit(step) for region_id, step in work.items()}
        self._running += 1
        return futures

    def _results(self, futures: Mapping[RegionId, Future[Result]]) -> dict[RegionId, Result]:
        """Wait for the regions without the lock, so that concurrent callers share WAL entries."""
        try:
            # Wait for every region, so that no put is still running when an error is raised.
            errors = [future.exception() for future in futures.values()]
        finally:
            with self._lock:
                self._running -= 1
                self._idle.notify_all()
        _raise_worst(errors)
        return {region_id: future.result() for region_id, future in futures.items()}

    def _claim(self, values: Iterable[RegionValue]) -> None:
        """Open the regions of some values side by side; where one cannot be opened, the others stay open."""

        def claim(value: RegionValue) -> None:
            region_id = regions[value]
            may_fence = self._takeover is Takeover.FENCE
            epoch = None if may_fence else self._context.epoch_without_writer(region_id)
            self._writers[value] = self._context.open_region(region_id, self._memory, epoch)

        regions = self._target.directory.ensure_all(values)
        self._unproven |= regions.keys()
        map_concurrently(claim, regions, self._context.table.settings.storage.concurrency)
        if self._unproven:
            self._prove_claims()

    def _prove_claims(self) -> None:
        """Give back what was claimed if its keys may wait in regions of other specs."""
        table = self._context.table
        try:
            OtherSpecs(table, self._takeover).require_rest(table.state(), self._target.shape.spec.spec_id)
        except ConflictError:
            for value in self._unproven & self._writers.keys():
                self._writers[value].close()
                del self._writers[value]
            self._unproven.clear()
            raise
        self._unproven.clear()

    def _follow_schema(self, *, now: bool = False) -> bool:
        """Adopt the base table's present schema, and return whether it has changed; rows written so far keep theirs."""
        shape = self._watch.shape(now=now)
        if shape.is_same(self._target.shape):
            return False
        target = self._context.target(shape)
        self._idle.wait_for(lambda: self._running == 0)
        self._require_open()  # The wait let others have the lock.
        # In this order: a region whose flush fails keeps its writer, and the next put begins here again.
        for value, writer in list(self._writers.items()):
            writer.flush()
            writer.close()
            del self._writers[value]
        self._target = target
        _log.info("the base table's schema has changed, regions are claimed again [columns=%s]", shape.schema.names)
        return True


def _raise_worst(errors: Sequence[BaseException | None]) -> None:
    """Raise what no retry mends before anything else: a region that was taken over does not tell it at its close."""
    raised = [error for error in errors if error is not None]
    for error in sorted(raised, key=lambda error: isinstance(error, RETRYABLE)):
        raise error
