"""A merge behind the quality gate, while writers go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.suites import digest_of_suites
from memwal_core.quality.model import Stage
from memwal_core.quality.table import QualityTable
from memwal_core.region.quarantine import Quarantined
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

GATED = MergeRequest(audited_only=True)


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    """Ten rows that wait in one region."""
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=1)
    write_generations(made, range(10), name="new")
    return made


def audit(table: BaseTable, suites: tuple[str, ...] = ()) -> QualityTable:
    """Record an audit that passed, as a run on Spark does."""
    opened = Table.open(table.uri).opened
    quality = QualityTable(opened.base, opened.manifests, opened.settings)
    quality.record_audit(quality.plan(Stage.BEFORE), {}, digest_of_suites(suites))
    return quality


def test_what_is_flushed_after_the_audit_waits_for_the_next_one(table: BaseTable) -> None:
    audit(table)
    write_generations(table, range(10, 20), name="late")

    first = Table.open(table.uri).run(GATED)
    idle = Table.open(table.uri).run(GATED)
    audit(table)
    second = Table.open(table.uri).run(GATED)

    told = "1 flushed MemTable of 1 region waits for the next audit: the audit of "
    assert (first.outcome, first.generations) == (JobOutcome.DONE, 1)
    assert first.why().startswith(f"1 generation merged in 1 commit; {told}")
    assert (idle.outcome, idle.why().startswith(told)) == (JobOutcome.NOTHING_TO_DO, True)
    assert idle.why().endswith("UTC did not see generation 2")
    assert (second.outcome, second.generations, second.why()) == (
        JobOutcome.DONE,
        1,
        "1 generation merged in 1 commit",
    )


def test_without_an_audit_by_the_same_suites_nothing_is_merged(table: BaseTable, tmp_path: Path) -> None:
    suite = tmp_path / "names.json"
    suite.write_text("{}")
    audit(table)

    report = Table.open(table.uri).run(MergeRequest(audited_only=True, suites=(str(suite),)))

    assert (report.outcome, report.generations) == (JobOutcome.NOTHING_TO_DO, 0)
    assert report.why().endswith("no audit by these suites is recorded")


def test_what_the_audit_held_back_is_merged_once_a_person_released_it(table: BaseTable) -> None:
    quality = audit(table)
    [region_id] = Table.open(table.uri).opened.manifests.region_ids()
    quality.quarantine.add(Quarantined(region_id, 1, ("key_not_null",), "now"))
    held = Table.open(table.uri).run(GATED.model_copy(update={"leave_held": True}))
    quality.release(region_id, 1)

    assert (held.outcome, held.generations) == (JobOutcome.PARTIAL, 0)
    assert Table.open(table.uri).run(GATED).generations == 1


def test_due_regions_are_bounded_by_the_audit_too(table: BaseTable) -> None:
    report = Table.open(table.uri).run(GATED.model_copy(update={"due_only": True}))

    assert report.generations == 0


def test_suites_without_their_audit_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not valid"):
        MergeRequest(suites=("names.json",))
