"""When a region snapshot is due, and which hints are raised with it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from memwal_core.clock import unix_millis
from memwal_core.format.memwal_index.snapshot import build_snapshot, snapshot_manifests
from memwal_core.ids import RegionId
from memwal_core.jobs.snapshot.plan import SnapshotReason, SnapshotRegion, SnapshotSurvey, plan_snapshot
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import IndexSettings

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SPEC = bucket_spec(1, "id", {"id": 0}, 4)


def region(number: int, *, version: int = 3, hint: int = 5, tail: int | None = None) -> SnapshotRegion:
    manifest = RegionManifest(
        region_id=RegionId(uuid.UUID(int=number)),
        version=version,
        wal_id_last_seen=hint,
        current_generation=3,
        flushed_generations=(FlushedGeneration(1, "00000001_gen_1"), FlushedGeneration(2, "00000002_gen_2")),
    )
    return SnapshotRegion(manifest, hint if tail is None else tail)


def snapshot_of(*regions: SnapshotRegion) -> pa.Table:
    return build_snapshot([each.manifest for each in regions], [SPEC])


def survey(*regions: SnapshotRegion, stored: pa.Table | None, inline: bool = True, age_s: float = 60) -> SnapshotSurvey:
    return SnapshotSurvey(
        table_uri="/t",
        version=7,
        taken=NOW,
        regions=regions,
        specs=(SPEC,),
        stored=stored,
        stored_inline=inline,
        stored_ts_millis=unix_millis(NOW - timedelta(seconds=age_s)),
        stored_regions=0 if stored is None else stored.num_rows,
    )


def test_first_snapshot_is_due():
    plan = plan_snapshot(survey(region(1), region(2), stored=None), IndexSettings())
    assert (plan.reason, plan.regions, len(plan.changed)) == (SnapshotReason.FIRST, 2, 2)
    assert plan.is_due


def test_snapshot_without_regions_is_published_once():
    assert plan_snapshot(survey(stored=None), IndexSettings()).reason is SnapshotReason.FIRST
    assert plan_snapshot(survey(stored=snapshot_of()), IndexSettings()).reason is SnapshotReason.UNCHANGED


def test_unreachable_file_is_told_from_a_first_snapshot():
    lost = replace(survey(region(1), stored=None), stored_regions=1)
    assert plan_snapshot(lost, IndexSettings()).reason is SnapshotReason.LOST


@pytest.mark.req("BLD-21")
def test_unchanged_regions_need_no_snapshot():
    stored = snapshot_of(region(1), region(2))
    plan = plan_snapshot(survey(region(1), region(2), stored=stored), IndexSettings())
    assert (plan.reason, plan.changed, plan.is_due) == (SnapshotReason.UNCHANGED, (), False)


def test_order_of_a_foreign_snapshot_does_not_matter():
    plan = plan_snapshot(survey(region(1), region(2), stored=snapshot_of(region(2), region(1))), IndexSettings())
    assert plan.reason is SnapshotReason.UNCHANGED


def test_forced_snapshot_is_published_although_nothing_changed():
    plan = plan_snapshot(survey(region(1), stored=snapshot_of(region(1))), IndexSettings(), force=True)
    assert (plan.reason, plan.is_due) == (SnapshotReason.FORCED, True)


def test_changed_new_and_vanished_regions_are_named():
    stored = snapshot_of(region(1), region(2), region(4))
    plan = plan_snapshot(survey(region(1), region(2, version=9), region(3), stored=stored), IndexSettings())
    assert plan.reason is SnapshotReason.CHANGED
    assert [each.int for each in plan.changed] == [2, 3, 4]


@pytest.mark.req("BLD-08")
def test_hint_is_raised_to_the_tail_and_never_lowered():
    behind, level = region(1, hint=12, tail=17), region(2, hint=12)
    plan = plan_snapshot(survey(behind, level, stored=snapshot_of(behind, level)), IndexSettings())
    assert {each.int: wal_id for each, wal_id in plan.hints.items()} == {1: 17}
    assert plan.reason is SnapshotReason.CHANGED


@pytest.mark.req("BLD-12")
@pytest.mark.parametrize(("count", "inline"), [(100, True), (101, False)])
def test_form_follows_the_threshold(count: int, inline: bool):
    regions = [region(number + 1) for number in range(count)]
    assert plan_snapshot(survey(*regions, stored=None), IndexSettings()).is_inline is inline


def test_snapshot_in_the_wrong_form_is_moved():
    stored = survey(region(1), stored=snapshot_of(region(1)), inline=False)
    plan = plan_snapshot(stored, IndexSettings())
    assert (plan.reason, plan.is_inline) == (SnapshotReason.FORM, True)


@pytest.mark.req("BLD-18")
@pytest.mark.parametrize(
    ("age_s", "reason"),
    [
        (299, SnapshotReason.FRESH),
        (300, SnapshotReason.CHANGED),
        (-5, SnapshotReason.CHANGED),
    ],
)
def test_young_snapshot_is_left_until_the_interval_is_over(age_s: float, reason: SnapshotReason):
    changed = survey(region(1, version=9), stored=snapshot_of(region(1)), age_s=age_s)
    plan = plan_snapshot(changed, IndexSettings(snapshot_interval_s=300))
    assert plan.reason is reason
    assert plan_snapshot(changed, IndexSettings(snapshot_interval_s=300), force=True).is_due


def test_plan_that_publishes_nothing_raises_no_hints():
    young = survey(region(1, hint=3, tail=8), stored=snapshot_of(region(1, hint=3)), age_s=1)
    assert plan_snapshot(young, IndexSettings(snapshot_interval_s=300)).hints == {}


@pytest.mark.req("BLD-10")
def test_row_keeps_every_recorded_generation_whatever_is_merged():
    found = snapshot_manifests(snapshot_of(region(1)))
    assert [each.generation for each in found[0].flushed_generations] == [1, 2]
