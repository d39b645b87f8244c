"""Publishing and reading region snapshots on real tables."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memwal_core.base_table import BaseTable, publish_snapshot, read_snapshot
from memwal_core.clock import unix_millis
from memwal_core.errors import ConflictError, CorruptionError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.snapshot import build_snapshot, snapshot_manifests, snapshot_schema
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest
from memwal_core.ids import RegionId
from memwal_core.settings import IndexSettings, Settings
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import make_people_table, people, reopened

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
TAKEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def manifests(count: int) -> tuple[RegionManifest, ...]:
    return tuple(
        RegionManifest(
            region_id=RegionId(uuid.UUID(int=number + 1)),
            version=number + 1,
            region_spec_id=1,
            region_field_values={"id_bucket": number.to_bytes(4, "little")},
            current_generation=2,
            flushed_generations=(FlushedGeneration(1, f"{number:08x}_gen_1"),),
        )
        for number in range(count)
    )


def snapshot_files(table: BaseTable) -> list[str]:
    return sorted(info.path for info in table.store.list_objects("_indices") if info.path.endswith("/index.lance"))


@pytest.mark.req("IDX-06", "IDX-07", "IDX-08", "IDX-11", "IDX-12", "IDX-13", "BLD-14")
@pytest.mark.parametrize(("count", "inline"), [(0, True), (1, True), (99, True), (100, True), (101, False)])
def test_snapshot_goes_inline_up_to_the_threshold_and_into_a_file_above(place: Any, count: int, inline: bool) -> None:
    table = make_people_table(place.uri, storage_options=place.storage_options)
    snapshot = build_snapshot(manifests(count), table.state().require_details().region_specs)

    state = publish_snapshot(table, snapshot, taken=TAKEN)

    details = state.require_details()
    assert (details.num_regions, details.snapshot_ts_millis) == (count, unix_millis(TAKEN))
    assert (details.inline_snapshots is not None) is inline
    assert state.entry is not None
    assert snapshot_files(table) == ([] if inline else [f"_indices/{state.entry.index_id}/index.lance"])
    found = read_snapshot(table, state)
    assert found is not None
    assert found.equals(snapshot)
    assert snapshot_manifests(found) == manifests(count)


@pytest.mark.req("IDX-13")
def test_threshold_comes_from_the_settings(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(inline_snapshot_threshold=3))
    table = make_people_table(str(tmp_path / "t"), settings=settings)
    specs = table.state().require_details().region_specs

    three = publish_snapshot(table, build_snapshot(manifests(3), specs), taken=TAKEN)
    four = publish_snapshot(table, build_snapshot(manifests(4), specs), taken=TAKEN)

    assert three.require_details().inline_snapshots is not None
    assert four.require_details().inline_snapshots is None
    for state, count in ((three, 3), (four, 4)):
        found = read_snapshot(table, table.state(state.version))
        assert found is not None
        assert found.num_rows == count


@pytest.mark.req("IDX-14")
def test_inline_snapshot_costs_no_request_and_details_without_one_are_small(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    bare = table.state()
    state = publish_snapshot(table, build_snapshot(manifests(100), bare.require_details().region_specs), taken=TAKEN)
    store = FaultyStore(table.store)
    recorded = reopened(table, store)
    store.calls.clear()

    assert read_snapshot(recorded, state) is not None
    assert store.calls == []
    assert bare.entry is not None
    assert len(bare.entry.payload) < 200


@pytest.mark.req("IDX-10")
@pytest.mark.parametrize("inline", ["file", "unset", "empty"])
def test_snapshot_of_no_regions_is_read_in_each_form(tmp_path: Path, inline: str) -> None:
    table = make_people_table(str(tmp_path / "t"))
    specs = table.state().require_details().region_specs
    state = publish_snapshot(table, build_snapshot([], specs), taken=TAKEN)
    if inline != "file":
        data = None if inline == "unset" else b""
        state = table.update_details(lambda details: replace(details, inline_snapshots=data))

    found = read_snapshot(table, state)

    assert found is not None
    assert (found.num_rows, found.schema) == (0, snapshot_schema(specs))


def test_table_whose_snapshot_was_never_built_has_none(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))

    assert read_snapshot(table, table.state()) is None


def test_region_count_announced_by_pylance_is_no_snapshot(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    state = table.update_details(lambda details: replace(details, num_regions=4))

    assert read_snapshot(table, state) is None


@pytest.mark.req("BLD-02", "BLD-03", "BLD-13", "IDX-29")
def test_publication_keeps_configuration_progress_and_catchup(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    table.update_details(lambda details: replace(details, maintained_indexes=("name_idx",)))
    merge_natively(table, people(2), {A: 3})
    table.dataset().optimize.optimize_indices()
    merge_natively(table, people(3), {A: 4})
    before = table.state().require_details()

    after = publish_snapshot(table, build_snapshot(manifests(2), before.region_specs), taken=TAKEN).require_details()

    assert before.index_catchup == {"name_idx": {A: 3}}
    changed = {name for name in MemWalIndexDetails.__slots__ if getattr(before, name) != getattr(after, name)}
    assert changed == {"snapshot_ts_millis", "num_regions", "inline_snapshots"}


@pytest.mark.req("BLD-15")
def test_merge_during_the_publication_keeps_its_progress(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    specs = table.state().require_details().region_specs
    interrupted = BaseTable(table.store)
    original = interrupted.state
    states = [table.state()]
    merge_natively(table, people(2), {A: 1})
    interrupted.state = lambda version=None: states.pop() if states else original(version)  # type: ignore[method-assign]

    state = publish_snapshot(interrupted, build_snapshot(manifests(1), specs), taken=TAKEN)

    assert state.version == 4
    assert state.require_details().merged_generations == {A: 1}


def test_external_snapshot_of_a_refused_publication_is_removed(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(inline_snapshot_threshold=0, max_attempts=2))
    table = make_people_table(str(tmp_path / "t"), settings=settings)
    specs = table.state().require_details().region_specs
    old = table.state()
    merge_natively(table, people(1), {A: 1})
    late = BaseTable(table.store, settings=settings)
    late.state = lambda _=None: old  # type: ignore[method-assign]

    with pytest.raises(ConflictError):
        publish_snapshot(late, build_snapshot(manifests(1), specs), taken=TAKEN)
    assert snapshot_files(table) == []


def test_external_snapshot_is_lost_to_readers_after_pylances_own_commit_and_survives_ours(tmp_path: Path) -> None:
    """pylance renames the index with each progress commit; the manifests then answer instead."""
    settings = Settings(index=IndexSettings(inline_snapshot_threshold=0))
    table = make_people_table(str(tmp_path / "t"), settings=settings)
    specs = table.state().require_details().region_specs
    published = publish_snapshot(table, build_snapshot(manifests(2), specs), taken=TAKEN)

    ours = table.update_details(lambda details: replace(details, snapshot_ts_millis=unix_millis(TAKEN) + 1))
    merge_natively(table, people(1), {A: 1})

    assert read_snapshot(table, ours) is not None
    assert read_snapshot(table, table.state()) is None
    assert read_snapshot(table, table.state(published.version)) is not None


def test_external_snapshot_survives_lances_cleanup(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(inline_snapshot_threshold=0))
    table = make_people_table(str(tmp_path / "t"), settings=settings)
    specs = table.state().require_details().region_specs
    publish_snapshot(table, build_snapshot(manifests(2), specs), taken=TAKEN)
    state = publish_snapshot(table, build_snapshot(manifests(3), specs), taken=TAKEN)

    table.dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    found = read_snapshot(table, state)
    assert found is not None
    assert found.num_rows == 3
    assert len(snapshot_files(table)) == 1


@pytest.mark.req("IDX-08")
def test_snapshot_of_another_size_than_announced_is_corruption(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    specs = table.state().require_details().region_specs
    publish_snapshot(table, build_snapshot(manifests(2), specs), taken=TAKEN)
    state = table.update_details(lambda details: replace(details, num_regions=3))

    with pytest.raises(CorruptionError, match="as many rows"):
        read_snapshot(table, state)
