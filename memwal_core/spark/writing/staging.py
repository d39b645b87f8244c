"""Rows of a batch on their way from tasks to regions, as files beside the table.

A data source's writer gets rows in whatever partitions Spark has, so rows of one region come from
many tasks, while a region has one writer. So tasks check rows and stage them in files, grouped by
region; the driver's process then writes each region from the files, see ``commit``. A file that no
record names means nothing: attempts of tasks may be repeated and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter
from pyspark.sql.datasource import WriterCommitMessage

from memwal_core.base_table import TableReader, translated
from memwal_core.format.lance_file.whole import require_end
from memwal_core.format.paths import staged_rows_path
from memwal_core.ingest.admission import RowAdmission, RowProblem
from memwal_core.ingest.batch import combined_hash
from memwal_core.native.casting import compact_rows
from memwal_core.settings import MIB

SPILL_BYTES = 64 * MIB
"""Arrow bytes of rows that a task holds before it writes them to a file."""

_READ_ROWS = 4096


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of one region in one file.

    Attributes:
        path: The file, relative to the table.
        start: First row.
        keys: Sum of the hashes of their keys, as 64 bits, to recognise the same rows again.
        spec_id: Of the region spec that ``value`` belongs to.
    """

    value: str
    path: str
    start: int
    rows: int
    keys: int
    spec_id: int


class StagedMessage(WriterCommitMessage):
    """What one task tells the driver.

    ``stream`` is the streaming query as the task knows it, None in a batch write; ``problem`` says why the
    rows cannot be written, None if they can; ``repeated`` counts rows that are not staged because their batch is
    written.
    """

    def __init__(
        self, stream: str | None, staged: Sequence[StagedRows], problem: RowProblem | None = None, repeated: int = 0
    ) -> None:
        self.stream = stream
        self.staged = tuple(staged)
        self.problem = problem
        self.repeated = repeated


class Stager:
    """Stages the rows of one task in files below ``directory`` (relative to the table)."""

    def __init__(
        self, table: TableReader, admission: RowAdmission, directory: str, spill_bytes: int = SPILL_BYTES
    ) -> None:
        self._table = table
        self._admission = admission
        self._directory = directory
        self._spill_bytes = spill_bytes
        self._buffered: dict[str, list[pa.Table]] = {}
        self._size = 0
        self.staged: list[StagedRows] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> RowProblem | None:
        """Stage all rows, describe them in ``staged``, and return the first problem with a row, if any."""
        for batch in batches:
            examined = self._admission.examine(batch)
            if examined.problem is not None:
                return examined.problem
            for value, rows in examined.parts:
                self._buffered.setdefault(value, []).append(rows)
                self._size += rows.nbytes
            if self._size >= self._spill_bytes:
                self._spill()
        self._spill()
        return None

    def _spill(self) -> None:
        parts = [(value, pa.concat_tables(tables)) for value, tables in sorted(self._buffered.items())]
        self._buffered, self._size = {}, 0
        if not parts:
            return
        store = self._table.store
        path = staged_rows_path(self._directory, self._table.ids.commit_id().hex())
        file = store.staging_directory(path) / path.rpartition("/")[2]
        start = 0
        with translated("stage rows", str(file)):
            with LanceFileWriter(str(file), parts[0][1].schema) as writer:
                for value, rows in parts:
                    for batch in compact_rows(rows).to_batches():
                        writer.write_batch(batch)
                    digest = combined_hash(self._admission.keys_of(rows), self._admission.key)
                    spec_id = self._admission.spec.spec_id
                    self.staged.append(StagedRows(value, path, start, rows.num_rows, digest, spec_id))
                    start += rows.num_rows
            require_end(file)
        try:
            store.put_file_if_absent(path, file)
        finally:
            file.unlink(missing_ok=True)


def staged_batches(
    table: TableReader, pieces: Sequence[StagedRows], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some pieces, one after the other, some thousand rows at a time."""
    for piece in pieces:
        address = table.store.uri_of(piece.path)
        with translated("read staged rows", address):
            options = dict(table.storage_options) or None
            reader = LanceFileReader(address, options, list(columns) if columns is not None else None)
            yield from reader.read_range(piece.start, piece.rows, batch_size=_READ_ROWS, batch_readahead=1).to_batches()


def staged_schema(table: TableReader, piece: StagedRows) -> pa.Schema:
    """Return the columns of a staged file, ``_tombstone`` included."""
    address = table.store.uri_of(piece.path)
    with translated("read staged rows", address):
        return LanceFileReader(address, dict(table.storage_options) or None).metadata().schema
