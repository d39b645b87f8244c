"""Values of identity regions, which rows in the WAL tell and ids confirm."""

from __future__ import annotations

from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lancedb import LsmWriteSpec

from memwal_core.format.paths import wal_entry_path
from memwal_core.observe.region_values import values_by_rows
from memwal_core.table import Table
from memwal_core.wal.arrow_codec import ArrowCodec
from memwal_core.wal.entry import FENCE_KEY


def written(folder: Path, of_tenant: dict[object, int]) -> Table:
    """Let the client write batches of some rows, each for one tenant, with a vector behind its columns."""
    kind = pa.scalar(next(iter(of_tenant))).type
    fields = [("id", pa.int64()), ("tenant", kind), ("v", pa.list_(pa.float32(), 64))]
    schema = pa.schema([pa.field(name, each, nullable=False) for name, each in fields])
    made = lancedb.connect(str(folder)).create_table("t", schema=schema)
    made.set_unenforced_primary_key("id")
    made.set_lsm_write_spec(LsmWriteSpec.identity("tenant"))
    start = 0
    for tenant, rows in of_tenant.items():
        vectors = pa.FixedSizeListArray.from_arrays(np.zeros(rows * 64, np.float32), 64)
        ids = np.arange(start, start + rows)
        batch = pa.table([ids, pa.array([tenant] * rows, kind), vectors], schema=schema)
        made.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(batch)
        made.close_lsm_writers()
        start += rows
    return Table.open(made.uri)


def shown(table: Table) -> set[str | None]:
    return {value for region in table.status().regions for value in region.value.values()}


def test_integers_and_entries_larger_than_what_is_read_of_them_tell_their_value(tmp_path: Path) -> None:
    ours = written(tmp_path, {7: 1000, -3: 1})

    assert shown(ours) == {"7", "-3"}


def test_marks_of_claims_without_rows_are_passed_over(tmp_path: Path) -> None:
    ours = written(tmp_path, {"a": 1, "b": 1})
    mark = b"".join(ArrowCodec({}).encode(pa.table({}), {FENCE_KEY: "true", "writer_epoch": "9"}, "2.0", Path))
    for region_id in ours.opened.manifests.region_ids():
        for wal_id in (2, 3):
            ours.base.store.put_if_absent(wal_entry_path(region_id, wal_id, ".arrow"), mark)

    assert shown(ours) == {"a", "b"}
    assert {region.wal_tail for region in ours.status().regions} == {3}


@pytest.mark.parametrize("damage", ["other region's rows", "flipped", "truncated", "missing"])
def test_rows_that_do_not_confirm_the_id_are_not_believed(tmp_path: Path, damage: str) -> None:
    """Negative control: each entry told its value before."""
    ours = written(tmp_path, {"a": 1, "b": 1})
    assert shown(ours) == {"a", "b"}
    paths = [
        Path(ours.uri) / wal_entry_path(region.region_id, region.wal_tail, ".arrow") for region in ours.status().regions
    ]
    first, second = (path.read_bytes() for path in paths)
    if damage == "other region's rows":
        paths[0].write_bytes(second)
        paths[1].write_bytes(first)
    for path, data in zip(paths, (first, second), strict=True):
        if damage == "flipped":
            # Also where lengths and offsets lie: none may end the process.
            path.write_bytes(bytes(byte ^ 0x5A if place % 7 == 0 else byte for place, byte in enumerate(data)))
        elif damage == "truncated":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "missing":
            path.unlink()
    manifests = [ours.opened.manifests.load(region.region_id) for region in ours.status().regions]

    specs = ours.base.state().require_details().region_specs
    assert values_by_rows(ours.base.store, specs, manifests, [1] * len(manifests), 1) == {}
