"""Masks of superseded base rows: the right rows, by row id, whichever way they are found."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.reader.rows import places
from memwal_core.reader.rows.deletion_mask import find_deletion_mask
from memwal_core.reader.rows.places import asks_index
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import people
from testkit.tables.readable import as_model, keys_of


@pytest.mark.parametrize(("columns", "most"), [(["id"], 6), (["id", "name"], 3)])
def test_condition_has_a_bound_that_is_lower_for_keys_of_several_columns(
    tmp_path: Path, columns: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_BTREE_SHARE", 1)
    monkeypatch.setattr(places, "_MAX_VALUES", 6)
    monkeypatch.setattr(places, "_MAX_TERMS", 3)
    base = _rewritten(str(tmp_path / "t"), stable=False)
    keys = base.to_table(columns=columns)

    assert [asks_index(base, keys.slice(0, count), columns) for count in (most, most + 1)] == [True, False]


def _rewritten(uri: str, *, stable: bool) -> lance.LanceDataset:
    """Return a table of 0..39 without 3 and 17, whose rows have moved since they were written."""
    lance.write_dataset(people(*range(40)), uri, max_rows_per_file=10, enable_stable_row_ids=stable)
    lance.dataset(uri).delete("id IN (3, 17)")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=20)
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    return lance.dataset(uri)


@pytest.mark.req("RD-01", "RD-58")
@pytest.mark.parametrize("share", [10_000, 1], ids=["scan of the keys", "index"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_mask_leaves_out_exactly_the_rows_of_the_keys(
    tmp_path: Path, stable: bool, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_BTREE_SHARE", share)
    base = _rewritten(str(tmp_path / "t"), stable=stable)
    assert asks_index(base, keys_of(0, 3, 20, 39, 500), ["id"]) is (share == 1)
    mask = find_deletion_mask(base, keys_of(0, 3, 20, 39, 500), ["id"])
    left = base.scanner(columns=["id"], row_addr_blocklist=mask.blocklist).to_table().column("id").to_pylist()

    assert len(mask.row_ids) == 3
    assert sorted(left) == sorted({*range(40)} - {0, 3, 17, 20, 39})


@pytest.mark.parametrize("keys", [(), (500, 501)])
def test_keys_that_the_base_table_lacks_make_no_mask(tmp_path: Path, keys: tuple[int, ...]) -> None:
    base = _rewritten(str(tmp_path / "t"), stable=False)

    assert find_deletion_mask(base, keys_of(*keys), ["id"]).blocklist is None


@pytest.mark.req("RD-01", "RD-39")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_answers_with_and_without_the_mask_are_equal(tmp_path: Path, stable: bool) -> None:
    uri = str(tmp_path / "t")
    _rewritten(uri, stable=stable)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)])
    with TableWriter.open(table) as writer:
        writer.put(people(1, 20, 60, name="new"))
        writer.delete(keys_of(2, 39))
        writer.flush()
    request = ScanRequest(filter_sql="id > 1 OR name = 'new'")
    compared = Table.open(uri).view()
    masked = Table.open(uri).view()
    masked.scan().to_arrow()

    assert compared._opened.known_mask() is None
    assert as_model(compared.scan(request).to_arrow()) == as_model(masked.scan(request).to_arrow())
    assert compared._opened.known_mask() is None
    assert masked._opened.known_mask() is not None
    narrow = ScanRequest(columns=("score", "id"))
    assert compared.scan(narrow).to_arrow().sort_by("id") == masked.scan(narrow).to_arrow().sort_by("id")
    assert compared._opened.known_mask() is None  # Nothing but the key and a number: no look at all keys before.
    assert compared.scan(request).count() == masked.scan(request).count() == 36
    assert masked.scan().count() == 37
    assert masked.scan(ScanRequest(limit=5)).to_arrow().num_rows == 5
    assert pa.compute.sum(masked.scan(ScanRequest(columns=("id",))).to_arrow().column("id")).as_py() == sum(
        {*range(40), 60} - {2, 3, 17, 39}
    )
