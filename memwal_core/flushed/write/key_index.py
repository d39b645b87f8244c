"""pylance's key index of a flushed MemTable (``_pk_index/``): key -> row, sorted by key.

It is a BTREE index as Lance has stored them since its first release: one file with all keys in order
and the row of each, and one with the smallest and largest key of every page of it. Integer keys are
laid out here, because the plan already knows the order of the keys; all others are left to
pylance, which sorts them again (decision 0017).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.lance import _write_pk_sidecar  # type: ignore[attr-defined]  # missing in the stubs

from memwal_core.deduplicate import key_order
from memwal_core.format.lance_file.whole import require_end
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal import plain_file

KEY_INDEX_DIRECTORY = "_pk_index"
KEY_INDEX_PAGES = "page_data.lance"
"""In that directory: every key in order, as column ``values``; an encoded form if the key has several columns."""
_PAGE_ROWS = 8192
_SETTINGS = {"batch_size": str(_PAGE_ROWS), "range_partitioned": "false"}


def write_key_index(
    store: ObjectStore,
    path: str,
    keys: pa.Table,
    key_columns: Sequence[str],
    order: npt.NDArray[np.int64] | None = None,
) -> None:
    """Write the key index of a flushed MemTable; ``sync_directory`` makes it durable.

    Args:
        store: The table's store.
        path: The flushed MemTable's directory.
        keys: The key of every physical row, in the table's order; nothing but the key columns.
        key_columns: The primary key in key order.
        order: ``key_order`` of the keys, if it is known.

    Raises:
        OSError: Lance could not write.
        RuntimeError: As before.
        ValueError: As before.
    """
    known = key_order(keys, key_columns) if order is None else order
    if known is not None and len(known):
        _put(store, path, integer_key_index(keys.column(key_columns[0]), known))
    elif not keys.num_rows:
        _put(store, path, empty_key_index(keys.schema.field(0).type if len(key_columns) == 1 else pa.binary()))
    elif store.kind is StoreKind.LOCAL:
        _write_pk_sidecar(store.uri_of(path), keys, list(key_columns))
    else:
        with tempfile.TemporaryDirectory(dir=store.staging_directory(path)) as scratch:
            _write_pk_sidecar(scratch, keys, list(key_columns))
            for file in sorted(Path(scratch).rglob("*.lance")):
                require_end(file)
                store.put_file_if_absent(f"{path}/{file.relative_to(scratch).as_posix()}", file)


def integer_key_index(keys: pa.ChunkedArray, order: npt.NDArray[np.int64]) -> dict[str, bytes]:
    """Return the files of the index of one integer column.

    Args:
        keys: Not empty.
        order: Rows by key, those of one key in the order of the rows.

    Returns:
        File name -> content.
    """
    values = keys.to_numpy()[order]
    first = np.arange(0, len(values), _PAGE_ROWS)
    last = np.minimum(first + _PAGE_ROWS, len(values)) - 1
    pages = {
        "values": (keys.type, values, True),
        "ids": (pa.uint64(), order.view(np.uint64), False),
    }
    lookup = {
        "min": (keys.type, values[first], True),
        "max": (keys.type, values[last], True),
        "null_count": (pa.uint32(), np.zeros(len(first), np.uint32), False),
        "page_idx": (pa.uint32(), np.arange(len(first), dtype=np.uint32), False),
    }
    return {KEY_INDEX_PAGES: _file(pages, {}), "page_lookup.lance": _file(lookup, _SETTINGS)}


def empty_key_index(kind: pa.DataType) -> dict[str, bytes]:
    """Return the files of the index of no keys, which Lance does not write and its readers want.

    Args:
        kind: Of the key; binary if it has several columns.

    Returns:
        File name -> content.
    """
    pages = pa.schema([pa.field("values", kind), pa.field("ids", pa.uint64(), nullable=False)])
    numbers = [pa.field(name, pa.uint32(), nullable=False) for name in ("null_count", "page_idx")]
    lookup = pa.schema([pa.field("min", kind), pa.field("max", kind), *numbers])
    return {
        KEY_INDEX_PAGES: plain_file(pages.empty_table(), {}),
        "page_lookup.lance": plain_file(lookup.empty_table(), _SETTINGS),
    }


def _put(store: ObjectStore, path: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        store.put(f"{path}/{KEY_INDEX_DIRECTORY}/{name}", data)


def _file(columns: dict[str, tuple[pa.DataType, npt.NDArray[np.generic], bool]], metadata: dict[str, str]) -> bytes:
    schema = pa.schema([pa.field(name, kind, nullable=null) for name, (kind, _, null) in columns.items()])
    arrays = [pa.array(values, kind) for kind, values, _ in columns.values()]
    return plain_file(pa.Table.from_arrays(arrays, schema=schema), metadata)
