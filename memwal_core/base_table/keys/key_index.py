"""What Lance's indexes on a key column say about where its values are, read from the index files.

Only for forecasts: rows are found by Lance, which uses the same index. So a file that is not as expected costs
nothing but the forecast, and with it the index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table.keys.spans import Values, values_of
from memwal_core.base_table.reading.checked_opening import open_file
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.translate import translated
from memwal_core.errors import CorruptionError

BTREE = "BTree"
ZONE_MAP = "ZoneMap"

_FILES: Mapping[str, str] = {BTREE: "page_lookup.lance", ZONE_MAP: "zonemap.lance"}
_PAGES = "page_data.lance"
_PAGE_ROWS = 4096
_ASKED = re.compile(r"\]@([^()]+)\(")
_LOCAL_READ = 1 << 12
_REMOTE_READ = 1 << 16


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """An index on one column: its zones or pages, and what reading them costs.

    Attributes:
        fragments: Fragments that it covers, of those that the version has.
        lows: Lowest value of each zone or page, see ``Spans``.
        rows: Rows of each, deleted ones included.
        owners: Fragment of each zone; empty for pages, whose rows lie anywhere.
        page_bytes: Bytes of one page; 0 for zones.
        sample: Addresses of the rows of one page.
        disk_pages: For each column of the pages, the parts in which its file holds it, each described by itself.
    """

    name: str
    kind: str
    column: str
    fragments: frozenset[int]
    lows: Values
    highs: Values
    rows: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]
    fixed_bytes: int
    page_bytes: int = 0
    sample: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    disk_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnSizes:
    """What reading whole columns costs, from a sample of data files.

    Attributes:
        row_bytes: Bytes of one row's key columns, on disk.
        joined_bytes: Lance joins two reads of a file into one where less lies between them.
    """

    row_bytes: float
    fragment_bytes: int
    joined_bytes: int = _LOCAL_READ


def _smallest_read(*, is_local: bool) -> int:
    """Return the bytes that Lance reads at least at once, of the end of a file or with what lies between two reads."""
    return _LOCAL_READ if is_local else _REMOTE_READ


def column_sizes(
    dataset: lance.LanceDataset, columns: Sequence[str], options: Mapping[str, str], *, is_local: bool, sample: int
) -> ColumnSizes:
    """Measure columns on disk in up to ``sample`` data files, spread over the fragments.

    Raises:
        CorruptionError: A data file is not what the table says.
    """
    fields = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    wanted = {fields[column] for column in columns}
    ids = list(dataset.fragment_ids())
    chosen = {ids[round(at)] for at in np.linspace(0, len(ids) - 1, min(sample, len(ids)))}
    size = rows = opened = 0
    for owner in (each.metadata for each in fragments_of(dataset, sorted(chosen))):
        rows += owner.physical_rows
        for file in owner.files:
            places = [at for field, at in zip(file.fields, file.column_indices, strict=True) if field in wanted]
            if not places or file.base_id is not None:
                continue
            reader = open_file(f"{dataset.uri}/data/{file.path}", options)
            statistics = reader.file_statistics().columns
            size += sum(statistics[at].size_bytes for at in places)
            facts = reader.metadata()
            opened += max(
                _smallest_read(is_local=is_local), facts.num_column_metadata_bytes + facts.num_global_buffer_bytes
            )
    joined = _smallest_read(is_local=is_local)
    return ColumnSizes(size / max(1, rows), opened // max(1, len(chosen)), joined)


def key_indexes(dataset: lance.LanceDataset, columns: Sequence[str]) -> dict[str, lance.IndexDescription]:
    """Return, for each column that has one, the scalar index with bounds that Lance would use; reads no index.

    ``CorruptionError``: the manifest contradicts itself.
    """
    with translated("list indexes", dataset.uri, version=dataset.version):
        described = [index for index in dataset.describe_indices() if len(index.fields) == 1]
        found = {}
        for column in columns:
            on_it = [index for index in described if list(index.field_names) == [column]]
            usable = [index for index in on_it if index.index_type in _FILES and not _is_elsewhere(index)]
            if len(on_it) > 1:
                used = _index_used(dataset, column)
                usable = [index for index in usable if index.name == used]
            if usable:
                found[column] = usable[0]
    return found


def read_key_index(
    dataset: lance.LanceDataset,
    column: str,
    index: lance.IndexDescription,
    options: Mapping[str, str],
    *,
    is_local: bool,
) -> KeyBounds:
    """Read the bounds of an index's zones or pages.

    Raises:
        CorruptionError: Its files are not as Lance writes them.
    """
    kind = str(index.index_type)
    data_type = dataset.schema.field(column).type
    present = set(dataset.fragment_ids())
    parts: list[pa.Table] = []
    covered: set[int] = set()
    fixed = pages = 0
    sample: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    disk_pages: tuple[int, ...] = ()
    for segment in index.segments:
        covered |= set(segment.fragment_ids) & present
        directory = f"{dataset.uri}/_indices/{segment.uuid}"
        bounds, size = _read(f"{directory}/{_FILES[kind]}", data_type, options)
        parts.append(bounds)
        fixed += size + _smallest_read(is_local=is_local)
        if kind == BTREE:
            pages += max(0, (segment.size_bytes or 0) - size)
            sample, each_column, described = _page(f"{directory}/{_PAGES}", options)
            fixed += max(_smallest_read(is_local=is_local), described)
            disk_pages = (*disk_pages, *each_column)
    table = pa.concat_tables(parts)
    table = table.filter(pa.compute.is_valid(table.column("min")))
    owners = np.empty(0, np.int64)
    if kind == ZONE_MAP:
        table = table.filter(pa.compute.is_in(table.column("fragment_id"), pa.array(sorted(covered), pa.uint64())))
        owners = table.column("fragment_id").to_numpy().astype(np.int64)
        rows = table.column("zone_length").to_numpy().astype(np.int64)
    else:
        rows = np.full(table.num_rows, index.num_rows_indexed // max(1, table.num_rows), np.int64)
    return KeyBounds(
        index.name,
        kind,
        column,
        frozenset(covered),
        values_of(table.column("min")),
        values_of(table.column("max")),
        rows,
        owners,
        fixed,
        pages // max(1, table.num_rows),
        sample,
        disk_pages,
    )


def _read(uri: str, data_type: pa.DataType, options: Mapping[str, str]) -> tuple[pa.Table, int]:
    """Return the bounds in an index file, and its size in bytes."""
    reader = open_file(uri, options)
    facts = reader.metadata()
    with translated("read an index", uri):
        table = reader.read_all().to_table()
    expected = {"min", "max", *(("fragment_id", "zone_length") if uri.endswith(_FILES[ZONE_MAP]) else ())}
    if not expected <= set(table.column_names) or table.schema.field("min").type != data_type:
        raise CorruptionError(
            "an index file is not as Lance writes it", remedy="rebuild the index", path=uri, columns=table.column_names
        )
    return table, facts.num_data_bytes + facts.num_column_metadata_bytes + facts.num_global_buffer_bytes


def _page(uri: str, options: Mapping[str, str]) -> tuple[npt.NDArray[np.uint64], tuple[int, ...], int]:
    """Return the row addresses of a middle page of a BTREE, the parts of its columns, and what describes them."""
    reader = open_file(uri, options)
    first = reader.num_rows() // 2 // _PAGE_ROWS * _PAGE_ROWS
    with translated("read an index", uri):
        rows = reader.read_range(first, min(_PAGE_ROWS, reader.num_rows() - first), batch_size=_PAGE_ROWS).to_table()
        addresses = np.asarray(rows.column("ids").to_numpy(), dtype=np.uint64)
        facts = reader.metadata()
        described = facts.num_column_metadata_bytes + facts.num_global_buffer_bytes
        return addresses, tuple(column.num_pages for column in reader.file_statistics().columns), described


def _is_elsewhere(index: lance.IndexDescription) -> bool:
    """Return whether files of an index lie in another table, as those of a shallow clone do."""
    return any(segment.base_id is not None for segment in index.segments)


def _index_used(dataset: lance.LanceDataset, column: str) -> str:
    """Return which of several indexes on a column Lance would use; empty if none."""
    plan = dataset.scanner(columns=[column], filter=f"`{column}` IS NOT NULL").explain_plan(True)
    found = _ASKED.search(plan)
    return found.group(1) if found is not None else ""
