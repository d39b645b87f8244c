"""A clone inherits progress of regions that stayed behind: what begins under their ids is never taken for merged."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import DamagedError, FrozenError, InvalidRequestError
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.table import Table
from tests.integration.jobs.freeze.histories import PYLANCE, region_of, region_path, rows_of


@pytest.fixture
def original(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    PYLANCE.make(uri)
    PYLANCE.write(uri, [1], "original")
    assert Table.open(uri).run(MergeRequest()).outcome is JobOutcome.DONE
    return uri


def merge(uri: str) -> JobOutcome:
    outcome: JobOutcome = Table.open(uri).run(MergeRequest()).outcome
    return outcome


def require_merged_after_thaw(clone: str) -> None:
    """Require that jobs freeze the clone, and merge all of the new region once a person decided."""
    with pytest.raises(FrozenError) as caught:
        merge(clone)
    assert caught.value.facts["causes"] == ["region-began-again"]
    Table.open(clone).thaw(Decision(Choice.MERGE_AGAIN, "someone"))
    assert merge(clone) is JobOutcome.DONE
    assert set(rows_of(clone)) == {1, 10, 11, 12}


@pytest.mark.parametrize("job", [MergeRequest(), CompactRequest(force=True)], ids=lambda each: each.info.name)
def test_s3_region_that_begins_on_a_clone_after_a_job_ran_there_is_told(
    original: str, tmp_path: Path, job: JobRequest
) -> None:
    """The job remembered progress of a region that it had never seen, and the next one took that for the new region."""
    clone = str(tmp_path / "clone.lance")
    lance.dataset(original).shallow_clone(clone, lance.dataset(original).version)
    Table.open(clone).run(job)
    for number in range(10, 13):
        PYLANCE.write(clone, [number], "clone")
    require_merged_after_thaw(clone)


@pytest.mark.parametrize("kind", ["shallow", "deep"])
def test_s3_region_that_passed_its_progress_on_a_young_clone_is_told(original: str, tmp_path: Path, kind: str) -> None:
    """Dates tell it only after a minute, since clocks differ."""
    clone = str(tmp_path / "clone.lance")
    make = lance.dataset(original).shallow_clone if kind == "shallow" else lance.dataset(original).deep_clone
    make(clone, lance.dataset(original).version)
    for number in range(10, 13):
        PYLANCE.write(clone, [number], "clone")
    require_merged_after_thaw(clone)


def test_clone_that_was_frozen_by_hand_before_any_job_is_looked_at_by_the_first(original: str, tmp_path: Path) -> None:
    """The freeze made a record without a memory, and the look at a table that no job has seen was left out."""
    clone = str(tmp_path / "clone.lance")
    lance.dataset(original).shallow_clone(clone, lance.dataset(original).version)
    for number in range(10, 13):
        PYLANCE.write(clone, [number], "clone")
    Table.open(clone).freeze("wait", by="someone")
    Table.open(clone).thaw(Decision(Choice.ACCEPT, "someone"))
    require_merged_after_thaw(clone)


@pytest.mark.parametrize("kind", ["shallow", "deep"])
def test_clone_of_a_merged_table_can_be_maintained_once_a_person_gave_up_what_stayed_behind(
    original: str, tmp_path: Path, kind: str
) -> None:
    """Regions of the original counted as lost for ever, and no command could end that."""
    clone, region_id = str(tmp_path / "clone.lance"), region_of(original)
    make = lance.dataset(original).shallow_clone if kind == "shallow" else lance.dataset(original).deep_clone
    make(clone, lance.dataset(original).version)
    with pytest.raises(DamagedError) as refused:
        Table.open(clone).to_arrow()
    assert "`memwal thaw --choice accept`" in refused.value.remedy
    repaired = Table.open(clone).run(RepairRequest())
    assert [each.subject for each in repaired.plan.unresolved] == [f"region {region_id}"]

    assert merge(clone) is JobOutcome.PARTIAL
    (freeze,) = Table.open(clone).status().frozen
    assert (freeze.cause, freeze.region_id) == (FreezeCause.REGION_VANISHED, region_id)
    assert freeze.evidence["merged_before"] == 1
    Table.open(clone).thaw(Decision(Choice.ACCEPT, "someone"))

    assert merge(clone) is JobOutcome.NOTHING_TO_DO
    assert Table.open(clone).to_arrow()["id"].to_pylist() == [1]
    PYLANCE.write(clone, [2], "clone")
    assert merge(clone) is JobOutcome.DONE, "the region of this id is a new one by decision"
    assert set(rows_of(clone)) == {1, 2}
    assert merge(original) is JobOutcome.NOTHING_TO_DO
    backup = BackupRequest(target=str(tmp_path / "backup.lance"))
    if kind == "deep":
        assert Table.open(clone).run(backup).outcome is JobOutcome.DONE
        return
    with pytest.raises(InvalidRequestError, match="files at other addresses") as elsewhere:
        Table.open(clone).run(backup)
    assert "deep_clone" in elsewhere.value.remedy


def test_region_that_disappears_before_any_job_saw_it_is_remembered_by_a_later_one(original: str) -> None:
    """It was parked without a freeze, so that nobody could give it up."""
    shutil.rmtree(Path(original) / "_mem_wal" / "_record")
    shutil.rmtree(region_path(original))
    assert merge(original) is JobOutcome.PARTIAL
    assert merge(original) is JobOutcome.PARTIAL
    (freeze,) = Table.open(original).status().frozen
    assert freeze.cause is FreezeCause.REGION_VANISHED
    Table.open(original).thaw(Decision(Choice.ACCEPT, "someone"))
    assert merge(original) is JobOutcome.NOTHING_TO_DO
