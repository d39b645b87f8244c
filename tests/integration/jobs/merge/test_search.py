"""A merge reads as much of the base table's keys as it must: through an index on the key where that pays."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.merge.decide import triggers
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import CompactSettings, MergeSettings, Settings, StorageSettings
from memwal_core.table import Table
from testkit.faults.rival_mergers import WAYS, prepared_by
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PRIMARY_KEY_METADATA

ROWS, FRAGMENTS = 200_000, 10
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA), pa.field("v", pa.int32())]
)


def rows(ids, value):
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([value] * len(ids), pa.int32())}, schema=SCHEMA)


def make_table(uri: str, index: str, covered: int = FRAGMENTS) -> None:
    size = ROWS // FRAGMENTS
    for at in range(FRAGMENTS):
        lance.write_dataset(rows(range(at * size, (at + 1) * size), 0), uri, mode="append" if at else "create")
        if at + 1 == covered:
            lance.dataset(uri).create_scalar_index("id", index, name="by key")
    BaseTable.open(uri).create_mem_wal_index([])


def merged(uri: str, way: str = "join", **merge: object):
    bounds = prepared_by(way, MergeSettings(**merge))
    return Table.open(uri, settings=Settings(merge=bounds, storage=StorageSettings(fsync=False))).run(MergeRequest())


def changed(uri: str) -> dict[int, int]:
    dataset = lance.dataset(uri)
    dataset.validate()
    found = dataset.to_table(filter="v > 0", use_scalar_index=False)
    return dict(zip(*found.to_pydict().values(), strict=True))


NEWEST = [*range(ROWS - 500, ROWS + 500)]


@pytest.mark.parametrize("index", ["ZONEMAP", "BTREE"])
@pytest.mark.parametrize("way", WAYS)
def test_keys_in_order_of_time_read_little_of_the_base_table(tmp_path, way, index):
    uri = str(tmp_path / "t")
    make_table(uri, index, covered=FRAGMENTS - 1)
    write_native_generations(uri, native_region_id(1), [[Put(rows(NEWEST, 1))], [Put(rows([ROWS - 1], 2))]])

    [commit] = merged(uri, way).commits

    assert changed(uri) == dict.fromkeys(NEWEST, 1) | {ROWS - 1: 2}
    assert lance.dataset(uri).count_rows() == ROWS + 500
    chosen = commit.search.chosen
    [scan] = [each for each in commit.search.ways if each.name == "scan"]
    assert "by key" in chosen.name
    assert chosen.read_bytes < scan.read_bytes / 3


def test_tombstones_are_found_through_an_index(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, "ZONEMAP")
    write_native_generations(uri, native_region_id(1), [[Put(rows([7], 1)), Delete(rows([8, 9], 0).select(["id"]))]])

    report = merged(uri)

    assert report.commits[0].search.chosen.condition
    assert lance.dataset(uri).count_rows("id IN (7, 8, 9)") == 1
    assert "search: ZoneMap" in "\n".join(report.view().notes)


def test_keys_everywhere_are_found_by_a_scan(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, "ZONEMAP")
    ids = np.random.default_rng(1).choice(ROWS, 5_000, replace=False)
    write_native_generations(uri, native_region_id(1), [[Put(rows(ids, 1))]])

    [commit] = merged(uri).commits

    assert changed(uri) == dict.fromkeys(ids.tolist(), 1)
    assert commit.search.chosen.name == "scan"


def test_the_setting_forces_a_scan(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, "ZONEMAP")
    write_native_generations(uri, native_region_id(1), [[Put(rows(NEWEST, 1))]])

    [commit] = merged(uri, search="scan").commits

    assert changed(uri) == dict.fromkeys(NEWEST, 1)
    assert commit.search.ways == ()


@pytest.mark.parametrize(
    ("index", "file"), [("ZONEMAP", "zonemap.lance"), ("BTREE", "page_lookup.lance"), ("BTREE", "page_data.lance")]
)
@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_a_damaged_index_costs_a_scan_and_no_row(tmp_path, index, file, damage):
    uri = str(tmp_path / "t")
    make_table(uri, index)
    write_native_generations(uri, native_region_id(1), [[Put(rows(NEWEST, 1))]])
    [path] = Path(uri).glob(f"_indices/*/{file}")
    path.unlink() if damage == "gone" else path.write_bytes(b"x" * path.stat().st_size)

    merged(uri)

    assert changed(uri) == dict.fromkeys(NEWEST, 1)
    assert lance.dataset(uri).to_table(use_scalar_index=False).num_rows == ROWS + 500


def test_copies_of_a_key_are_found_through_an_index(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, "ZONEMAP")
    lance.write_dataset(rows([ROWS - 1], 0), uri, mode="append")
    write_native_generations(uri, native_region_id(1), [[Put(rows(NEWEST, 1))]])

    with pytest.raises(Exception, match="more than once"):
        merged(uri)


@pytest.mark.parametrize("indexed", [False, True])
def test_a_dear_search_keeps_many_small_generations_waiting_and_why_says_so(tmp_path, monkeypatch, indexed):
    monkeypatch.setattr(triggers, "_CHEAP_BYTES", 1024)
    uri = str(tmp_path / "t")
    make_table(uri, "ZONEMAP", covered=FRAGMENTS if indexed else 0)
    region = native_region_id(1)
    write_native_generations(uri, region, [[Put(rows([number], 1))] for number in range(8)])
    table = Table.open(uri)

    due = table.run(MergeRequest(due_only=True))
    [said] = [each for each in table.why(region).verdicts if each.job == "merge"]

    if indexed:
        assert due.outcome is JobOutcome.DONE
    else:
        assert (due.outcome, due.reason) == (JobOutcome.NOTHING_TO_DO, "no region is due")
        assert "more than 8; it waits" in due.triggers[region].reason
        assert said.reason.partition(" (now")[0] == due.triggers[region].reason.partition(" (now")[0]
    assert table.run(MergeRequest()).outcome is (JobOutcome.NOTHING_TO_DO if indexed else JobOutcome.DONE)


@pytest.mark.parametrize("index", ["ZONEMAP", "BTREE"])
def test_catchup_keeps_an_index_on_the_key_useful_through_merges_and_compaction(tmp_path, index):
    uri = str(tmp_path / "t")
    make_table(uri, index)
    # Bytes alone decide: a table as small as this is scanned with fewer requests.
    bytes_alone = MergeSettings(request_bytes=0)
    compacted = CompactSettings(min_fragments=2, target_rows=ROWS)
    table = Table.open(uri, settings=Settings(merge=bytes_alone, compact=compacted))
    region = native_region_id(1)
    expected = {}
    for turn in range(1, 4):
        ids = [ROWS - 1 - turn, *range(ROWS + 100 * turn, ROWS + 100 * turn + 100)]
        write_native_generations(uri, region, [[Put(rows(ids, turn))]])
        [commit] = table.run(MergeRequest()).commits
        expected |= dict.fromkeys(ids, turn)
        assert "by key" in commit.search.chosen.name, commit.search.reason
        assert "not cover" not in commit.search.chosen.detail
        table.run(CatchupRequest())
        if turn == 2:
            assert table.run(CompactRequest()).outcome is JobOutcome.DONE
            table.run(CatchupRequest())
    assert changed(uri) == expected
