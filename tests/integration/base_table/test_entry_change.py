"""Strict commits on tables whose index catch-up Lance keeps itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from memwal_core.base_table import BaseTable, publish_snapshot, read_snapshot
from memwal_core.clock import SystemClock
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.snapshot import build_snapshot
from memwal_core.region import RegionManifest
from memwal_core.settings import IndexSettings, Settings
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import delete_natively, merge_natively
from testkit.tables.native_regions import native_region_id

REGION = native_region_id(1)


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    """Return a table with progress 1 that every index covers and no index has recorded."""
    settings = Settings(index=IndexSettings(inline_snapshot_threshold=0))
    made = make_articles_table(str(tmp_path / "t"), rows=20, kinds=("BTREE", "BITMAP"), settings=settings)
    merge_natively(made, articles(0, 0), {REGION: 1})
    return made


def touched(details: MemWalIndexDetails) -> MemWalIndexDetails:
    return replace(details, snapshot_ts_millis=details.snapshot_ts_millis + 1)


@pytest.mark.req("IDX-41", "CAT-08")
def test_catch_up_that_lance_credits_in_a_strict_commit_stays(table: BaseTable) -> None:
    assert table.state().require_details().index_catchup == {}
    after = table.update_details(touched).require_details()
    assert after.index_catchup == {"id_idx": {REGION: 1}, "topic_idx": {REGION: 1}}
    assert (after.snapshot_ts_millis, after.merged_generations) == (1, {REGION: 1})


@pytest.mark.req("CAT-09")
def test_entry_changed_on_purpose_wins_and_the_others_are_those_of_lance(table: BaseTable) -> None:
    only = MappingProxyType({"id_idx": MappingProxyType({REGION: 0})})
    after = table.update_details(lambda details: replace(details, index_catchup=only)).require_details()
    assert after.index_catchup == {"id_idx": {REGION: 0}, "topic_idx": {REGION: 1}}


@pytest.mark.parametrize("progress", [0, 2])
def test_catch_up_that_lance_credits_while_progress_is_lowered_goes_no_further(tmp_path: Path, progress: int) -> None:
    """Otherwise generations that are merged again count as covered before they are, and may be deleted."""
    table = make_articles_table(str(tmp_path / "t"), rows=20, kinds=("BTREE", "BITMAP"))
    merge_natively(table, articles(0, 0), {REGION: 3})
    assert table.state().require_details().index_catchup == {}

    table.declare_progress({REGION: progress}, read=table.state(), message="merge again")

    after = table.state().require_details()
    assert after.merged_generation(REGION) == progress
    assert after.index_catchup == {name: {REGION: progress} if progress else {} for name in ("id_idx", "topic_idx")}


def test_entry_of_an_index_that_does_not_exist_is_dropped_and_blocks_nothing(table: BaseTable) -> None:
    ghost = MappingProxyType({"ghost": MappingProxyType({REGION: 1})})
    table.update_details(lambda details: replace(details, index_catchup=ghost))
    after = table.update_details(touched).require_details()
    assert set(after.index_catchup) == {"id_idx", "topic_idx"}


@pytest.mark.req("IDX-12", "BLD-20")
def test_external_snapshot_stays_reachable_although_lance_stages_another_index_id(table: BaseTable) -> None:
    table.update_details(touched)
    snapshot = build_snapshot([RegionManifest(REGION)], table.state().require_details().region_specs)
    published = publish_snapshot(table, snapshot, taken=SystemClock().now())
    table.dataset().create_scalar_index("title", "BTREE", name="title_idx")
    state = table.update_details(lambda details: replace(details, maintained_indexes=("title_idx",)))
    assert published.entry is not None
    assert state.entry is not None
    found = read_snapshot(table, table.state(published.version))
    assert found is not None
    assert found.num_rows == 1
    again = publish_snapshot(table, snapshot, taken=SystemClock().now())
    delete_natively(table, articles(1, 1).select(["id"]), read_version=again.version, marks={REGION: 2})
    third = publish_snapshot(table, snapshot, taken=SystemClock().now())
    touched_again = table.update_details(touched)
    assert third.entry is not None
    assert touched_again.entry is not None
    assert touched_again.entry.index_id == third.entry.index_id
    assert read_snapshot(table, touched_again) is not None
