"""Old versions that garbage collection still concludes something from stay when versions are removed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from memwal_core.base_table import list_versions
from memwal_core.clock import SystemClock
from memwal_core.coordination.freeze import Choice
from memwal_core.errors import CorruptionError, FrozenError
from memwal_core.jobs.compact.cleanup import Kept
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.items import FreeingRule, Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.signals import Signal
from memwal_core.settings import CompactSettings, GcSettings, Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)
STAGED = "3f2b8c1e-0000-4000-8000-000000000001"


def long_after(uri: str) -> Table:
    """Open a table when every version is old, and only the newest is kept for its number."""
    clock = ManualClock(SystemClock().now())
    clock.advance(timedelta(days=60).total_seconds())
    settings = Settings(compact=CompactSettings(keep_versions=1), gc=GcSettings(grace_s=0))
    return Table.open(uri, settings=settings, clock=clock)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(5)))
    write_native_generations(uri, REGION, [[Put(people(1, 2))], [Put(people(3))]])
    return uri


def versions(admin: Table) -> list[int]:
    return [each.version for each in list_versions(admin.base)]


@pytest.mark.req("GC-19")
def test_version_that_alone_tells_that_progress_went_back_is_not_removed(uri: str) -> None:
    """Removed, garbage collection and merges would trust a progress that somebody took back."""
    admin = long_after(uri)
    before = admin.base.state().version
    merge_natively(admin.base, people(1, 2, 3), {REGION: 2})
    admin.base.dataset(before).restore()
    there = versions(admin)

    [told] = [each for each in admin.doctor().readings if each.signal is Signal.BASE_VERSIONS]
    assert told.evidence["needed"] == 1
    for _ in ("found", "remembered"):
        for request in (CompactRequest(remove_versions=True), GcRequest(dry_run=False)):
            with pytest.raises(FrozenError) as caught:
                long_after(uri).run(request)
            assert caught.value.facts["causes"] == ["progress-went-back"]
    assert versions(admin) == there

    admin = long_after(uri)
    admin.thaw(Decision(Choice.MERGE_AGAIN, "someone", reason="the rows went back with it"))
    admin.run(MergeRequest())  # Progress is again what it was, so nothing needs the old version any more.
    admin.run(CompactRequest(remove_versions=True))
    assert versions(admin) == [admin.base.state().version]


@pytest.mark.req("GC-19")
def test_version_that_proves_its_staged_manifest_left_over_stays_until_that_is_collected(uri: str) -> None:
    admin = long_after(uri)
    old = versions(admin)[0]
    staged = f"{admin.base.manifests.locate(old).path}-{STAGED}"
    admin.base.store.put(staged, b"staged")
    admin.run(MergeRequest())

    dry = admin.run(CompactRequest(remove_versions=True, dry_run=True))
    assert dry.cleanup is not None
    assert dry.cleanup.plan.keep[old] is Kept.NEEDED
    admin.run(CompactRequest(remove_versions=True))

    assert versions(admin) == [old, admin.base.state().version]
    [told] = [each for each in admin.health().readings if each.signal is Signal.BASE_VERSIONS]
    assert (told.value, told.subject) == (0, "0 of 2 versions, and 1 that garbage collection needs")
    leftovers = [item for item in admin.run(GcRequest()).plan.items if item.kind is Kind.LEFTOVER]
    assert [(item.path, item.reason) for item in leftovers] == [(staged, FreeingRule.ABANDONED)]
    admin.run(GcRequest(dry_run=False))
    assert admin.base.store.head(staged) is None
    admin.run(CompactRequest(remove_versions=True))
    assert versions(admin) == [admin.base.state().version]


def test_nothing_is_removed_while_a_retained_version_cannot_be_read(uri: str) -> None:
    admin = long_after(uri)
    old = versions(admin)[0]
    admin.run(MergeRequest())
    admin.base.store.put(admin.base.manifests.locate(old).path, b"not a manifest")
    there = versions_on_disk(uri)

    with pytest.raises(CorruptionError, match="old versions were not removed"):
        admin.run(CompactRequest(remove_versions=True))

    assert versions_on_disk(uri) >= there


def versions_on_disk(uri: str) -> set[str]:
    return {path.name for path in Path(uri, "_versions").iterdir()}
