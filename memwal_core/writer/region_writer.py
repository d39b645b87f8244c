"""The writer of one region: claim, replay, put, flush, close."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import (
    CommitUnknownError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    MemwalError,
    UnavailableError,
)
from memwal_core.flush import FieldLayout, field_layout, plan_flush, write_flushed_memtable
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import (
    FlushedGeneration,
    ManifestStore,
    RegionManifest,
    RegionStatus,
    check_epoch,
    claim,
    record_flush,
)
from memwal_core.memtable import Fragment, MemTable, memtable_schema, with_tombstones
from memwal_core.settings import Settings
from memwal_core.storage.layout import generation_directory_name
from memwal_core.wal import LANCE_CODEC, WalAppender, WalCodec, WalEntry, read_tail
from memwal_core.writer.validate import conform, tombstones

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PutReceipt:
    """What one put achieved.

    Attributes:
        rows: Rows taken.
        generation: MemTable that took them.
        wal_id: WAL entry that holds them; None while they are only in memory.
    """

    rows: int
    generation: int
    wal_id: int | None

    @property
    def durable(self) -> bool:
        """Whether the rows survive a crash."""
        return self.wal_id is not None or self.rows == 0


class RegionWriter:
    """The one active writer of a region. Safe to call from several threads; use ``open``.

    A put is acknowledged only while the region is provably still ours: the epoch was verified no
    longer than ``epoch_check_interval_s`` ago, measured at the moment of acknowledgement. Together
    with the rule that younger WAL entries are never collected, a writer that slept through its own
    replacement cannot acknowledge rows that nobody will replay.
    """

    @classmethod
    def open(
        cls,
        table: BaseTable,
        region_id: RegionId,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> Self:
        """Claim a region, which fences its present writer, and replay its unflushed rows.

        Args:
            table: The base table; it needs a primary key and a MemWAL index.
            region_id: The region to own.
            settings: Values; defaults if None.
            clock: Time; the system's if None.
            ids: Source of identifiers; the system's if None.

        Raises:
            InvalidRequestError: The table or region cannot be written by this writer.
            FencedError: A newer writer claimed the region meanwhile.
            CorruptionError: The WAL has a hole or an unreadable entry. Nothing was changed but the epoch.
        """
        chosen = settings if settings is not None else Settings()
        source = ids if ids is not None else IdSource()
        state = table.state()
        table.require_writable(state)
        key = state.require_primary_key()
        base_fields = table.dataset(state.version).lance_schema.fields()
        schema = memtable_schema(state.schema, key.columns)
        layout = field_layout(base_fields, schema, state.data_storage_version)
        manifests = ManifestStore(table.store, source, settings=chosen.storage)
        _refuse_foreign_codec(manifests.load(region_id))
        writer = cls(table, state, layout, manifests, settings=chosen, clock=clock or SystemClock(), ids=source)
        writer._claim_and_replay(region_id)
        return writer

    def __init__(  # noqa: PLR0913  (``open`` is the constructor for callers)
        self,
        table: BaseTable,
        state: TableState,
        layout: FieldLayout,
        manifests: ManifestStore,
        *,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        """Keep the parts; nothing is claimed yet."""
        self._store = table.store
        self._base_schema = state.schema
        self._key = state.require_primary_key().columns
        self._schema = memtable_schema(state.schema, self._key)
        self._storage_version = state.data_storage_version
        self._layout = layout
        self._manifests = manifests
        self._settings = settings.writer
        self._concurrency = settings.storage.concurrency
        self._clock = clock
        self._ids = ids
        self._codec: WalCodec = LANCE_CODEC
        self._lock = threading.RLock()
        self._fenced: FencedError | None = None
        self._record_in_doubt: FlushedGeneration | None = None
        self._closed = False

    # -- what callers see ---------------------------------------------------------------------

    @property
    def region_id(self) -> RegionId:
        """The region that is owned."""
        return self._manifest.region_id

    @property
    def writer_epoch(self) -> int:
        """The epoch that was claimed."""
        return self._epoch

    @property
    def memtable(self) -> MemTable:
        """The active MemTable, for readers in the same process."""
        return self._memtable

    def put(self, rows: pa.Table | pa.RecordBatch) -> PutReceipt:
        """Write rows: new keys are inserted, existing ones replaced, the last row of a key wins.

        Args:
            rows: The base table's columns in any order; keys must not be NULL.

        Returns:
            Where the rows are. With ``durable_write`` they are in the WAL.

        Raises:
            InvalidRequestError: The batch does not fit; nothing was written.
            FencedError: Another writer owns the region. The rows are not acknowledged.
            CommitUnknownError: Storage did not answer; the rows stay pending and may be durable.
                Put them again, or call ``sync``.
        """
        return self._write(with_tombstones(conform(rows, self._base_schema, self._key), self._schema, deleted=False))

    def delete(self, keys: pa.Table | pa.RecordBatch) -> PutReceipt:
        """Delete rows by key; keys that do not exist are no error.

        Args:
            keys: The primary key's columns in any order; must not be NULL.

        Returns:
            Where the tombstones are, as for ``put``.

        Raises:
            InvalidRequestError: The keys do not fit, or the table has a value column that may not
                be NULL, so that it cannot hold a tombstone; nothing was written.
            FencedError: As for ``put``.
            CommitUnknownError: As for ``put``.
        """
        return self._write(tombstones(keys, self._base_schema, self._key, self._schema))

    def sync(self) -> int:
        """Make all rows put so far durable.

        Returns:
            The last WAL entry; 0 if the region has none.

        Raises:
            FencedError: Another writer owns the region; rows since the last sync are not acknowledged.
            CommitUnknownError: Storage did not answer; call again.
        """
        with self._lock:
            self._require_open()
            self._sync()
            return self._appender.last_wal_id

    def flush(self) -> FlushedGeneration | None:
        """Turn the MemTable into a flushed MemTable, ready to be merged.

        Returns:
            The recorded generation; None if there was nothing to flush.

        Raises:
            FencedError: Another writer owns the region and will replay the rows.
            UnavailableError: Storage failed; the rows stay readable and durable. Call again.
            CommitUnknownError: As in ``sync``.
        """
        with self._lock:
            self._require_open()
            return self._flush()

    def close(self) -> None:
        """Make pending rows durable and give up writing. The MemTable stays in the WAL.

        Skipping it loses nothing that was acknowledged as durable. Closing twice is harmless.
        """
        with self._lock:
            if self._closed or self._fenced is not None:
                self._closed = True
                return
            self._sync()
            self._closed = True

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # -- how it is done -------------------------------------------------------------------------

    def _write(self, batch: pa.Table) -> PutReceipt:
        with self._lock:
            self._require_open()
            if batch.num_rows == 0:
                return PutReceipt(0, self._memtable.generation, None)
            if self._memtable.num_rows and self._is_full(batch):
                self._flush()
            memtable = self._memtable
            memtable.add(batch)
            if self._settings.durable_write:
                self._sync()
                return PutReceipt(batch.num_rows, memtable.generation, memtable.last_wal_id)
            return PutReceipt(batch.num_rows, memtable.generation, None)

    def _claim_and_replay(self, region_id: RegionId) -> None:
        verified_at = self._clock.monotonic()
        self._manifest = claim(self._manifests, region_id)
        self._epoch = self._manifest.writer_epoch
        self._verified_at = verified_at
        self._memtable = self._new_memtable(self._manifest)
        entries = read_tail(
            self._store,
            region_id,
            self._codec,
            self._manifest.replay_after_wal_id,
            self._manifest.wal_id_last_seen,
            self._concurrency,
        )
        for entry in entries:
            self._replay(entry)
        self._appender = WalAppender(
            self._store,
            region_id,
            self._codec,
            writer_epoch=self._epoch,
            last_wal_id=self._memtable.last_wal_id,
            storage_version=self._storage_version,
            ids=self._ids,
        )
        _log.info(
            "region claimed [region_id=%s, writer_epoch=%d, replayed_entries=%d, replayed_rows=%d]",
            region_id,
            self._epoch,
            len(entries),
            self._memtable.num_rows,
        )
        if self._memtable.size_bytes > self._settings.max_memtable_bytes:
            self._flush()

    def _replay(self, entry: WalEntry) -> None:
        if entry.writer_epoch > self._epoch:
            raise self._fence(
                FencedError(
                    "a newer writer has already written to the region",
                    remedy="stop; open a new writer only if this process shall own the region",
                    region_id=str(self._manifest.region_id),
                    wal_id=entry.wal_id,
                    own_epoch=self._epoch,
                    found_epoch=entry.writer_epoch,
                )
            )
        if not entry.rows.schema.equals(self._schema.remove_metadata()):
            raise CorruptionError(
                "a WAL entry has another schema than the table",
                remedy="reopen the region with the table version that its last writer used, and flush it",
                region_id=str(self._manifest.region_id),
                wal_id=entry.wal_id,
                expected=str(self._schema.remove_metadata()),
                found=str(entry.rows.schema),
            )
        self._memtable.add_replayed(entry.rows.cast(self._schema), entry.wal_id, entry.size_bytes)

    def _new_memtable(self, manifest: RegionManifest) -> MemTable:
        return MemTable(manifest.current_generation, self._schema, manifest.replay_after_wal_id, self._clock.now())

    def _require_open(self) -> None:
        if self._fenced is not None:
            raise self._fenced
        if self._closed:
            raise InvalidRequestError(
                "the writer is closed", remedy="open a new one", region_id=str(self._manifest.region_id)
            )

    def _is_full(self, incoming: pa.Table) -> bool:
        size_bytes = self._memtable.size_bytes + int(incoming.nbytes)
        rows = self._memtable.num_rows + incoming.num_rows
        return size_bytes > self._settings.max_memtable_bytes or rows > self._settings.max_memtable_rows

    def _sync(self) -> None:
        pending = self._memtable.pending()
        if pending:
            try:
                appended = self._appender.append(pa.concat_tables(fragment.rows for fragment in pending))
            except FencedError as error:
                raise self._fence(error) from None
            for entry in appended.late:
                self._replay(entry)
            self._memtable.mark_flushed(len(pending), appended.wal_id, appended.size_bytes)
        self._verify_epoch_if_due()

    def _verify_epoch_if_due(self) -> None:
        now = self._clock.monotonic()
        if now - self._verified_at <= self._settings.epoch_check_interval_s:
            return
        try:
            stored = self._manifests.load(self._manifest.region_id)
        except UnavailableError as error:
            raise CommitUnknownError(
                "the rows are stored, but whether the region is still ours could not be verified",
                remedy="put the same rows again, or call sync",
                region_id=str(self._manifest.region_id),
                writer_epoch=self._epoch,
            ) from error
        self._check_epoch(stored)
        self._verified_at = now

    def _check_epoch(self, stored: RegionManifest) -> None:
        try:
            check_epoch(self._epoch, stored)
        except FencedError as error:
            raise self._fence(error) from None

    def _fence(self, error: FencedError) -> FencedError:
        self._fenced = error
        _log.warning("writer fenced [region_id=%s, writer_epoch=%d]", self._manifest.region_id, self._epoch)
        return error

    def _flush(self) -> FlushedGeneration | None:
        self._sync()
        settled = self._settle_record()
        if settled is not None:
            return settled
        if not self._memtable.num_rows:
            return None
        directory = generation_directory_name(self._ids.directory_prefix(), self._memtable.generation)
        plan = plan_flush(self._memtable, self._manifest.region_id, directory, self._key)
        record = write_flushed_memtable(self._store, plan, self._layout, self._codec)
        self._record(record, plan.last_wal_id)
        _log.info(
            "MemTable flushed [region_id=%s, generation=%d, path=%s, rows=%d, entries=%d]",
            plan.region_id,
            record.generation,
            record.path,
            plan.physical_rows,
            len(plan.entries),
        )
        return record

    def _record(self, record: FlushedGeneration, last_wal_id: int) -> None:
        last_seen = self._appender.last_wal_id
        self._record_in_doubt = record
        try:
            self._manifest = self._manifests.update(
                self._manifest.region_id,
                lambda stored: record_flush(stored, record, last_wal_id, last_seen),
                check=self._check_epoch,
            )
        except CommitUnknownError:
            raise  # The record stays in doubt; the next flush looks for it first.
        except MemwalError:
            self._record_in_doubt = None
            raise
        self._adopt(self._manifest)

    def _settle_record(self) -> FlushedGeneration | None:
        """Find out whether a flush whose reply was lost is recorded; if so, its rows are flushed."""
        record = self._record_in_doubt
        if record is None:
            return None
        stored = self._manifests.load(self._manifest.region_id)
        self._check_epoch(stored)
        if all(known.path != record.path for known in stored.flushed_generations):
            self._record_in_doubt = None
            return None
        self._adopt(stored)
        return record

    def _adopt(self, recorded: RegionManifest) -> None:
        """Start the next MemTable with what was put since the recorded flush."""
        self._record_in_doubt = None
        self._manifest = recorded
        later = [
            fragment for fragment in self._memtable.fragments if (fragment.wal_id or 0) > recorded.replay_after_wal_id
        ]
        sizes = {entry.wal_id: entry.size_bytes for entry in self._memtable.stored_entries()}
        self._memtable = self._new_memtable(recorded)
        for wal_id, rows in _rows_by_entry(later).items():
            self._memtable.add_replayed(rows, wal_id, sizes[wal_id])


def _rows_by_entry(fragments: Sequence[Fragment]) -> dict[int, pa.Table]:
    rows: dict[int, list[pa.Table]] = {}
    for fragment in fragments:
        if fragment.wal_id is not None:
            rows.setdefault(fragment.wal_id, []).append(fragment.rows)
    return {wal_id: pa.concat_tables(parts) for wal_id, parts in rows.items()}


def _refuse_foreign_codec(manifest: RegionManifest) -> None:
    if manifest.status is not RegionStatus.SEALED:
        raise InvalidRequestError(
            "this region belongs to pylance's own writer (its WAL has the arrow codec)",
            remedy="write it with pylance's mem_wal_writer, or create a region of your own",
            region_id=str(manifest.region_id),
            status=manifest.status.name,
        )
