"""A repair that is killed anywhere leaves a table that the next repair mends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from memwal_core.failpoints import Failpoint
from memwal_core.flushed.write import directory as commit_places
from memwal_core.flushed.write import files as file_places
from memwal_core.flushed.write import sidecars as sidecar_places
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair import run as places
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.repair.run import repair
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.file_damage import damage_file
from testkit.tables.generations import RIGHT, GenerationTable, make_generation_table
from testkit.tables.people import people

FLUSH = (
    file_places.FLUSH_ROWS,
    file_places.FLUSH_ROWS.done,
    commit_places.FLUSH_COMMIT,
    commit_places.FLUSH_COMMIT.done,
    sidecar_places.FLUSH_KEYS,
    sidecar_places.FLUSH_KEYS.done,
)
OWN = (places.REPAIR_COPIED, places.REPAIR_WRITTEN, places.REPAIR_CHANGED)
COMMITS = (places.REPAIR_COPIED, places.REPAIR_CHANGED)


def lost_generation(made: GenerationTable) -> RepairRequest:
    shutil.rmtree(Path(made.table.uri) / made.directory())
    return RepairRequest()


def torn_manifest(made: GenerationTable) -> RepairRequest:
    newest = lance.write_dataset(people(50), made.table.uri, mode="append").version
    damage_file(Path(made.table.uri) / made.table.base.manifests.locate(newest).path, "empty")
    return RepairRequest()


def duplicate_key(made: GenerationTable) -> RepairRequest:
    lance.write_dataset(people(2, name="base"), made.table.uri, mode="append")
    return RepairRequest(duplicates=True)


CASES = [
    *((lost_generation, place) for place in (*OWN, *FLUSH)),
    *((torn_manifest, place) for place in COMMITS),
    *((duplicate_key, place) for place in COMMITS),
]


@pytest.mark.parametrize(("damage", "place"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
@pytest.mark.parametrize("writer", ["ours", "pylance"])
def test_repair_killed_at_a_place_is_finished_by_the_next(
    tmp_path: Path, writer: str, damage: Callable[[GenerationTable], RepairRequest], place: Failpoint
) -> None:
    made = make_generation_table(str(tmp_path / "t"), writer)
    request = damage(made)
    failpoints = ArmedFailpoints().arm(place)
    with pytest.raises(SimulatedCrash):
        repair(JobContext(made.table.opened, failpoints=failpoints), request)
    assert failpoints.hits[place] == 1
    changed = place == places.REPAIR_CHANGED
    report = made.table.run(request)
    assert report.outcome is (JobOutcome.NOTHING_TO_DO if changed else JobOutcome.DONE), report.why()
    assert made.table.run(request).outcome is JobOutcome.NOTHING_TO_DO
    assert made.seen() == RIGHT
    assert made.merged() == RIGHT


def test_every_place_of_a_repair_has_a_kill() -> None:
    own = {value for name, value in vars(places).items() if name.startswith("REPAIR_") and isinstance(value, Failpoint)}
    assert own == {place for _, place in CASES} - set(FLUSH)


@pytest.mark.parametrize("place", [*OWN, *FLUSH])
def test_failed_call_is_repeated_by_the_next_repair(tmp_path: Path, place: Failpoint) -> None:
    """As the kill, but the error unwinds, so that whatever cleans up runs."""
    made = make_generation_table(str(tmp_path / "t"), "ours")
    lost_generation(made)

    def fail() -> None:
        raise OSError("the disk went away")

    with pytest.raises(Exception, match="the disk went away"):
        repair(JobContext(made.table.opened, failpoints=ArmedFailpoints().arm(place, fail)), RepairRequest())
    made.table.run(RepairRequest())
    assert made.merged() == RIGHT
