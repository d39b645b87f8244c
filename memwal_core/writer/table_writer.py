"""Writing to a table: every row goes to the one region that its region value names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import FlushedGeneration, ManifestStore
from memwal_core.region_spec import RegionRouter, RegionSpec, RegionValue
from memwal_core.settings import Settings
from memwal_core.writer.group_commit import PutReceipt
from memwal_core.writer.memory import MemoryBudget
from memwal_core.writer.region_directory import RegionDirectory
from memwal_core.writer.region_writer import RegionWriter
from memwal_core.writer.validate import conform


@dataclass(frozen=True, slots=True)
class TableReceipt:
    """What one put achieved.

    Attributes:
        regions: Region -> receipt of its rows.
        rows_left: Rows of regions that this writer was told to leave to others.
    """

    regions: Mapping[RegionId, PutReceipt]
    rows_left: int

    @property
    def rows(self) -> int:
        """Rows taken over all regions."""
        return sum(receipt.rows for receipt in self.regions.values())


class TableWriter:
    """Routes batches to the regions of one spec and writes the regions concurrently.

    Opening a region fences its present writer, so several table writers must own different
    regions: ``accept`` says which.
    """

    @classmethod
    def open(
        cls,
        table: BaseTable,
        *,
        spec_id: int | None = None,
        accept: Callable[[RegionValue], bool] | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> Self:
        """Prepare to write; regions are claimed when their first row comes.

        Args:
            table: The base table; it needs a primary key and a MemWAL index.
            spec_id: The region spec to follow; may be omitted if the table has exactly one.
            accept: Which region values are this writer's; all if None.
            settings: Values; defaults if None.
            clock: Time; the system's if None.
            ids: Source of identifiers; the system's if None.

        Raises:
            InvalidRequestError: The table cannot be written, or the spec does not exist.
        """
        chosen = settings if settings is not None else Settings()
        source = ids if ids is not None else IdSource()
        state = table.state()
        details = table.require_writable(state)
        key = state.require_primary_key()
        spec = _choose(details.region_specs, spec_id)
        manifests = ManifestStore(table.store, source, settings=chosen.storage)
        directory = RegionDirectory(table.store, spec, manifests, source, chosen.storage.concurrency)
        directory.refresh()

        memory = MemoryBudget(chosen.writer.max_buffered_bytes)

        def open_region(region_id: RegionId) -> RegionWriter:
            return RegionWriter.open(table, region_id, settings=chosen, clock=clock, ids=source, memory=memory)

        router = RegionRouter(spec, state.field_ids)
        return cls(router, directory, open_region, accept, (state.schema, key.columns), chosen)

    def __init__(
        self,
        router: RegionRouter,
        directory: RegionDirectory,
        open_region: Callable[[RegionId], RegionWriter],
        accept: Callable[[RegionValue], bool] | None,
        target: tuple[pa.Schema, tuple[str, ...]],
        settings: Settings,
    ) -> None:
        """Keep the parts; no region is claimed yet."""
        self._router = router
        self._directory = directory
        self._open_region = open_region
        self._accept = accept
        self._schema, self._key = target
        self._writers: dict[RegionValue, RegionWriter] = {}
        self._pool = ThreadPoolExecutor(settings.writer.max_open_regions, thread_name_prefix="memwal-region")

    @property
    def writers(self) -> Mapping[RegionValue, RegionWriter]:
        """The regions claimed so far."""
        return dict(self._writers)

    def put(self, rows: pa.Table | pa.RecordBatch) -> TableReceipt:
        """Write rows to their regions.

        The batch is checked as a whole before any region sees a row. Regions are independent: if
        one fails, rows of others may be durable already, and putting the batch again is harmless.

        Raises:
            InvalidRequestError: The batch does not fit; nothing was written.
            FencedError: Another writer took over one of the regions.
            CommitUnknownError: Storage did not answer for one of the regions; put again.
        """
        return self._distribute(conform(rows, self._schema, self._key), RegionWriter.put)

    def delete(self, keys: pa.Table | pa.RecordBatch) -> TableReceipt:
        """Delete rows by key in their regions; errors as for ``put`` and ``RegionWriter.delete``."""
        key_schema = pa.schema([field for field in self._schema if field.name in self._key])
        return self._distribute(conform(keys, key_schema, self._key), RegionWriter.delete)

    def flush(self) -> dict[RegionId, FlushedGeneration]:
        """Flush the MemTables of all claimed regions.

        Returns:
            The recorded generations; regions with nothing to flush are missing.
        """
        flushed = self._pool.map(lambda writer: (writer.region_id, writer.flush()), self._writers.values())
        return {region_id: record for region_id, record in flushed if record is not None}

    def close(self) -> None:
        """Make pending rows durable and give up all regions."""
        try:
            list(self._pool.map(lambda writer: writer.close(), self._writers.values()))
        finally:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _distribute(self, batch: pa.Table, write: Callable[[RegionWriter, pa.Table], PutReceipt]) -> TableReceipt:
        own, left = [], 0
        for value, part in self._router.route(batch):
            if self._accept is None or self._accept(value):
                own.append((self._writer(value), part))
            else:
                left += part.num_rows
        futures = [(writer.region_id, self._pool.submit(write, writer, part)) for writer, part in own]
        # Every region is waited for, so that no put is still running when an error is raised.
        errors = [error for _, future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return TableReceipt({region_id: future.result() for region_id, future in futures}, left)

    def _writer(self, value: RegionValue) -> RegionWriter:
        writer = self._writers.get(value)
        if writer is None:
            writer = self._open_region(self._directory.ensure(value))
            self._writers[value] = writer
        return writer


def _choose(specs: tuple[RegionSpec, ...], spec_id: int | None) -> RegionSpec:
    found = [spec for spec in specs if spec_id is None or spec.spec_id == spec_id]
    if len(found) == 1:
        return found[0]
    raise InvalidRequestError(
        "the table has no such region spec"
        if spec_id is not None
        else "the table does not have exactly one region spec",
        remedy="name one of the spec ids",
        spec_id=spec_id,
        known=[spec.spec_id for spec in specs],
    )
