"""Garbage collection in shares gives what one process gives, whatever is repeated, and under the same guards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memwal_core.coordination.freeze import FreezeCause
from memwal_core.errors import FencedError, FrozenError, InvalidRequestError
from memwal_core.format.paths import LEASES_DIRECTORY, LEDGER_DIRECTORY, RECORD_DIRECTORY, manifest_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.report import GcReport
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import FoundT, GivenT
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import ExecutorSettings
from memwal_core.table import Table
from testkit.pickling_executors import PicklingExecutors
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import drop_old_versions, gc_admin, write_generations
from testkit.tables.people import make_people_table, people

STAGES = ["gc: read manifests", "gc: list regions", "gc: collect regions"]
OF_RUNS = (LEASES_DIRECTORY, LEDGER_DIRECTORY, RECORD_DIRECTORY)


def make_table(uri: str) -> None:
    """Four regions with merged generations, one of which was flushed after the merge."""
    table = make_people_table(uri, rows=people(*range(20)), buckets=4)
    write_generations(table, list(range(0, 40)), list(range(10, 50)), name="a")
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)
    write_generations(table, list(range(5)), name="b")


@pytest.fixture
def uri(tmp_path) -> str:
    uri = str(tmp_path / "shared")
    make_table(uri)
    return uri


def deletes(admin: Table, executors: object = None, engine: Engine = Engine.SPARK) -> GcReport:
    request = GcRequest(dry_run=False, wait=True, engine=engine)
    report: Any = admin.run(request, executors=executors)
    assert isinstance(report, GcReport)
    return report


def tallies(report: GcReport) -> dict[str, tuple[int, int]]:
    return {kind.value: (tally.items, tally.objects) for kind, tally in report.done.items()}


def forms(admin: Table) -> list[str]:
    """Return what is left, without the names that every table has for itself."""
    return sorted(re.sub("[0-9a-f-]{8,}", "*", path) for path in objects(admin))


def objects(admin: Table) -> list[str]:
    return sorted(each.path for each in admin.base.store.list_objects("") if not each.path.startswith(OF_RUNS))


@pytest.mark.req("GC-01", "GC-20")
def test_shares_collect_what_one_process_collects(tmp_path, uri):
    alone = str(tmp_path / "alone")
    make_table(alone)
    executors = PicklingExecutors(slots=1)

    shared, expected = deletes(gc_admin(uri), executors), deletes(gc_admin(alone), engine=Engine.LOCAL)

    assert executors.stages == [*STAGES, *STAGES]  # The second time after the grace period.
    assert set(executors.shares) == {4}
    assert (shared.outcome, shared.failures) == (JobOutcome.DONE, ())
    assert {Kind.FLUSHED_MEMTABLE, Kind.DIRECTORY, Kind.WAL_ENTRY} <= set(shared.done)
    assert tallies(shared) == tallies(expected)
    assert forms(gc_admin(uri)) == forms(gc_admin(alone))
    assert lsm_view(gc_admin(uri).base) == lsm_view(gc_admin(alone).base)
    assert shared.to_dict()["where"] == {"engine": "spark", "reason": "it was asked for"}
    assert expected.to_dict()["where"] == {"engine": "local", "reason": "it was asked for"}
    assert "where: on executors: it was asked for" in shared.view().notes
    assert set(deletes(gc_admin(uri), PicklingExecutors()).done) <= {Kind.LEDGER_VERSION}


@pytest.mark.req("GC-22")
def test_share_that_is_done_twice_collects_as_much(tmp_path, uri):
    alone = str(tmp_path / "alone")
    make_table(alone)

    shared, expected = deletes(gc_admin(uri), PicklingExecutors(times=2)), deletes(gc_admin(alone), engine=Engine.LOCAL)

    assert (shared.outcome, shared.failures) == (expected.outcome, ())
    assert forms(gc_admin(uri)) == forms(gc_admin(alone))
    assert lsm_view(gc_admin(uri).base) == lsm_view(gc_admin(alone).base)


class Meddling(PicklingExecutors):
    """Lets something happen before regions are collected."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._meddle = meddle

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        if stage == STAGES[-1]:
            self._meddle()
        return super().map(stage, function, shares)


def test_share_without_the_lease_deletes_nothing(uri):
    admin = gc_admin(uri)
    before = objects(admin)
    request = GcRequest(dry_run=False, engine=Engine.SPARK)
    executors = Meddling(lambda: admin.opened.leases.acquire(request.key, "me"))

    with pytest.raises(FencedError):
        admin.run(request, executors=executors, holder="me")

    assert objects(admin) == before


def test_share_of_a_table_that_was_frozen_meanwhile_deletes_nothing(uri):
    admin = gc_admin(uri)
    before = objects(admin)
    executors = Meddling(lambda: admin.opened.freezes.add(FreezeCause.CHECK_FAILED, {}, "a test"))

    with pytest.raises(FrozenError):
        deletes(admin, executors)

    assert objects(admin) == before


def test_share_compares_what_it_reads_with_what_was_seen(uri):
    admin = gc_admin(uri)
    admin.run(SnapshotRequest(force=True))  # Which remembers the regions as they are.
    region_id = admin.opened.manifests.region_ids()[0]
    manifest = admin.opened.manifests.load(region_id)

    def replace_manifest() -> None:
        path = Path(uri) / manifest_path(region_id, manifest.version)
        path.write_bytes(encode_manifest(replace(manifest, commit_id=bytes(16))))

    report = None
    with pytest.raises(FrozenError) as raised:
        report = deletes(admin, Meddling(replace_manifest))

    assert report is None
    assert str(region_id) in str(raised.value)


def test_without_executors_a_dry_run_plans_here_and_a_run_refuses(uri):
    admin = gc_admin(uri)
    before = objects(admin)

    planned = admin.run(GcRequest(engine=Engine.SPARK))

    assert planned.outcome is JobOutcome.PLANNED
    assert planned.to_dict()["where"]["reason"] == "it was asked for, but this process has none"
    with pytest.raises(InvalidRequestError, match="this process has none"):
        deletes(admin)
    assert objects(admin) == before


@pytest.mark.parametrize(("least", "stages"), [(4, STAGES[:2]), (5, [])])
def test_number_of_regions_decides(uri, least, stages):
    executors = PicklingExecutors()
    admin = gc_admin(uri)
    settings = admin.opened.settings.model_copy(update={"executors": ExecutorSettings(min_regions=least)})

    report = Table(OpenTable.of(admin.base.with_settings(settings))).run(GcRequest(), executors=executors)

    assert executors.stages == stages
    assert report.to_dict()["where"]["engine"] == ("spark" if stages else "local")
