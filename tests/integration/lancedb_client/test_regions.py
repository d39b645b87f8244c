"""Regions of LanceDB's client: their values, our writer in them, and checks that do not take them for bad."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa
import pytest
from lancedb import LsmWriteSpec

from memwal_core.errors import ConflictError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.quality.checks.audit import audit_generation
from memwal_core.quality.model import Stage
from memwal_core.quality.table import QualityTable
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.client_regions import client_region_id, client_region_value
from memwal_core.table import Table
from testkit.tables.native_regions import make_table_divided_by

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("tenant", pa.string(), nullable=False)],
    metadata={"made": "by a data frame"},
)
SPECS = {
    "unsharded": LsmWriteSpec.unsharded(),
    "bucket": LsmWriteSpec.bucket("id", 4),
    "identity": LsmWriteSpec.identity("tenant"),
}


def rows(*ids: int, tenant: str = "a") -> pa.Table:
    return pa.table({"id": list(ids), "tenant": [tenant] * len(ids)}, schema=SCHEMA)


def upsert(table: lancedb.table.Table, new: pa.Table) -> None:
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)


@pytest.fixture(params=list(SPECS))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lancedb.table.Table:
    made = lancedb.connect(str(tmp_path)).create_table("t", schema=SCHEMA)
    made.set_unenforced_primary_key("id")
    made.set_lsm_write_spec(SPECS[request.param])
    return made


def written(table: lancedb.table.Table) -> Table:
    """Let the client write one row to each of several regions."""
    for number in range(8):
        upsert(table, rows(number, tenant=f"t{number % 3}"))
        table.close_lsm_writers()
    return Table.open(table.uri)


def test_ids_of_all_regions_follow_from_the_values_of_their_rows(table: lancedb.table.Table) -> None:
    ours = written(table)
    (spec,) = ours.base.state().require_details().region_specs
    values = {"unsharded": {(0,)}, "bucket": {(0,), (1,), (2,), (3,)}, "identity": {("t0",), ("t1",), ("t2",)}}
    expected = {client_region_id(spec, value): value for value in values[spec.fields[0].transform or ""]}

    found = set(ours.opened.manifests.region_ids())

    assert found == expected.keys()
    if spec.fields[0].transform != "identity":
        assert {region: client_region_value(spec, region) for region in found} == expected


def test_status_shows_values_under_the_names_of_columns(table: lancedb.table.Table) -> None:
    ours = written(table)

    shown = {tuple(region.value.items()) for region in ours.status().regions}

    (spec,) = ours.base.state().require_details().region_specs
    expected = {
        "unsharded": {()},
        "bucket": {(("bucket(id, 4)", str(number)),) for number in range(4)},
        "identity": {(("tenant", f"t{number}"),) for number in range(3)},
    }
    assert shown == expected[spec.fields[0].transform or ""]


def test_our_writer_writes_the_regions_of_the_client_and_each_sees_the_others_rows(table: lancedb.table.Table) -> None:
    """A second region for the same value would hold the same keys: which of two rows is newer could not be told."""
    upsert(table, rows(2))
    table.close_lsm_writers()
    ours = Table.open(table.uri)
    before = ours.opened.manifests.region_ids()

    with ours.writer(takeover="fence") as writer:
        writer.put(rows(2, tenant="a"))
        writer.put(rows(3, tenant="b"))
        writer.flush()
    with ours.writer(takeover="fence") as writer:
        writer.put(rows(3, tenant="b"))
        writer.flush()
    upsert(table, rows(3, tenant="b"))
    table.close_lsm_writers()

    (spec,) = ours.base.state().require_details().region_specs
    assert set(before) <= set(ours.opened.manifests.region_ids())
    assert len(ours.opened.manifests.region_ids()) == (1 if spec.fields[0].transform == "unsharded" else 2)
    assert sorted(ours.to_arrow(consistency="latest")["id"].to_pylist()) == [2, 3]
    assert ours.run(MergeRequest()).outcome is JobOutcome.DONE
    assert sorted(table.search().to_arrow()["id"].to_pylist()) == [2, 3]


def test_client_goes_on_in_a_region_whose_rows_our_writer_left_in_the_wal(table: lancedb.table.Table) -> None:
    """The client replays these rows; of metadata, the Lance that it bundles wants the table's, and the epoch."""
    upsert(table, rows(2))
    table.close_lsm_writers()
    ours = Table.open(table.uri)

    with ours.writer(takeover="fence") as writer:
        writer.put(rows(2, 3))
    for number in (3, 2, 4):
        upsert(table, rows(number))
        table.close_lsm_writers()

    assert sorted(ours.to_arrow(consistency="latest")["id"].to_pylist()) == [2, 3, 4]
    assert ours.run(MergeRequest()).outcome is JobOutcome.DONE
    assert sorted(table.search().to_arrow()["id"].to_pylist()) == [2, 3, 4]


def strays(uri: str) -> int:
    """Return how many flushed rows the check of regions would hold back."""
    opened = Table.open(uri).opened
    checked = QualityTable(opened.base, opened.manifests, opened.settings)
    facts = [audit_generation(task, {}) for task in checked.audit_tasks(checked.plan(Stage.BEFORE))]
    assert all(each.routing_problem is None for each in facts)
    return sum(each.strays or 0 for each in facts)


def test_client_refuses_a_table_that_was_divided_anew_and_our_writer_goes_on(table: lancedb.table.Table) -> None:
    """Its rows and ours would lie in different regions, and a key in two."""
    ours = written(table)
    ours.configuration.divide(["bucket(id, 16)"])
    with pytest.raises(ConflictError, match="another region spec"), ours.writer(spec_id=2) as writer:
        writer.put(rows(1, tenant="new"))
    ours.checkpoint(fence=True)

    with ours.writer(spec_id=2, takeover="fence") as writer:
        writer.put(rows(1, tenant="new"))
    with pytest.raises(RuntimeError, match="at most one sharding spec"):
        upsert(lancedb.connect(str(Path(ours.uri).parent)).open_table("t"), rows(1))

    found = ours.lookup(pa.table({"id": [1]}), consistency="durable")
    assert found.select(["id", "tenant"]).to_pylist() == [{"id": 1, "tenant": "new"}]


def test_rows_of_the_client_are_in_the_regions_where_they_belong(table: lancedb.table.Table) -> None:
    """Every row counted as one of another region, so that the checks held back all that the client had written."""
    written(table)

    assert strays(table.uri) == 0


def test_row_of_another_region_is_still_found(tmp_path: Path) -> None:
    made = lancedb.connect(str(tmp_path)).create_table("t", schema=SCHEMA)
    made.set_unenforced_primary_key("id")
    made.set_lsm_write_spec(SPECS["identity"])
    mixed = pa.concat_tables([rows(1, tenant="a"), rows(2, tenant="b")])
    merge = made.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.validate_single_shard(False).execute(mixed)
    made.close_lsm_writers()

    assert strays(made.uri) == 1
    assert Table.open(made.uri).to_arrow(ScanRequest(filter_sql="tenant = 'b'"))["id"].to_pylist() == [2]


def test_first_lookup_finds_rows_that_wait_whatever_decides_their_region(table: lancedb.table.Table) -> None:
    """Where the key does not tell the region, a table object's first lookup listed none, and found merged rows only."""
    upsert(table, rows(1))
    table.close_lsm_writers()

    assert Table.open(table.uri).lookup(pa.table({"id": [1]}))["tenant"].to_pylist() == ["a"]


def test_first_lookup_finds_rows_of_our_regions_by_another_column(tmp_path: Path) -> None:
    ours = make_table_divided_by("tenant", str(tmp_path / "t"), pa.schema([SCHEMA.field("tenant")]))
    with ours.writer() as writer:
        writer.put(rows(1))

    found = Table.open(ours.uri).lookup(pa.table({"id": [1]}), consistency="durable")
    assert found["tenant"].to_pylist() == ["a"]
