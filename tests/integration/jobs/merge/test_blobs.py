"""Blob columns, which pylance lets a table with MemWAL have, are refused before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import blob_array, blob_field

from memwal_core.base_table.blobs import blob_columns
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from testkit.tables.people import PRIMARY_KEY_METADATA

KEY = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA)
OLD = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


def _old_rows() -> pa.Table:
    return pa.table([[1, 2], pa.array([b"one", None], pa.large_binary())], schema=pa.schema([KEY, OLD]))


def _new_rows() -> pa.Table:
    return pa.table([pa.array([1, 2]), blob_array([b"one", None])], schema=pa.schema([KEY, blob_field("x")]))


@pytest.mark.parametrize(("make", "version"), [(_old_rows, "2.1"), (_new_rows, "2.2")], ids=["metadata", "blob v2"])
def test_s8_blob_columns_are_refused_by_name(tmp_path: Path, make: Callable[[], pa.Table], version: str) -> None:
    """A merge ended with a traceback of Arrow's."""
    uri, rows = str(tmp_path / "t"), make()
    dataset = lance.write_dataset(rows.slice(0, 0), uri, data_storage_version=version)
    dataset.initialize_mem_wal(unsharded=True)
    with lance.dataset(uri).mem_wal_writer(str(uuid.uuid4())) as writer:
        writer.put(rows)
    before = lance.dataset(uri).version
    table = Table.open(uri)
    assert blob_columns(table.base.state().schema) == ("x",)
    view = table.view()
    for act in (
        lambda: table.run(MergeRequest()),
        lambda: table.run(MergeRequest(dry_run=True)),
        lambda: table.writer().put(rows),
        lambda: view.scan().to_arrow(),
        lambda: view.lookup(pa.table({"id": [1]})),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            act()
        assert caught.value.facts["columns"] == ["x"]
    assert lance.dataset(uri).version == before
    assert view.scan(ScanRequest(columns=("id",))).to_arrow().column("id").to_pylist() == [1, 2]
    assert view.lookup(pa.table({"id": [2]}), ["id"]).num_rows == 1


def test_s8_blobs_inside_of_structs_are_found() -> None:
    schema = pa.schema([KEY, pa.field("s", pa.struct([OLD, pa.field("y", pa.int8())]))])
    assert blob_columns(schema) == ("s.x",)


def test_s8_a_table_with_blobs_is_not_given_mem_wal(tmp_path: Path) -> None:
    lance.write_dataset(_old_rows(), str(tmp_path / "t"), data_storage_version="2.1")
    base = Table.open(str(tmp_path / "t")).base
    with pytest.raises(InvalidRequestError, match="blob columns"):
        base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 2)])
