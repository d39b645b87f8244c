"""A compaction whose fragments executors rewrite leaves the table that one process leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable, list_fragments
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.jobs.compact.report import CompactReport
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.jobs.sharing.place import Engine
from memwal_core.settings import CompactSettings, ExecutorSettings, Settings
from memwal_core.table import Table
from testkit.pickling_executors import PicklingExecutors
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import native_region_id

A = native_region_id(1)
SETTINGS = Settings(compact=CompactSettings(min_fragments=4, target_rows=100))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Seven fragments, of which one has deleted rows, with indexes; two large groups."""
    made = make_articles_table(str(tmp_path / "t"), maintained=["title_idx", "vec_idx"])
    for generation in range(1, 5):
        merge_natively(made, articles(1950 + 30 * generation, 50, name=f"gen{generation}"), {A: generation})
    made.dataset().delete("id < 500")
    return made.uri


def run(uri: str, executors: Executors | None, engine: Engine, settings: Settings = SETTINGS) -> CompactReport:
    report = Table.open(uri, settings=settings).run(CompactRequest(engine=engine), executors=executors)
    assert isinstance(report, CompactReport)
    return report


def contents(table: BaseTable):
    state = table.state()
    assert state.details is not None
    rows = [(each.physical_rows, each.deleted_rows) for each in list_fragments(table, state.version)]
    dataset = table.dataset()
    found = dataset.to_table(filter="id = 2000").to_pylist()
    return rows, dataset.to_table(), state.details.merged_generations, state.details.index_catchup, found


@pytest.mark.parametrize("times", [1, 2])
def test_executors_rewrite_what_one_process_rewrites(tmp_path, uri, times):
    alone = str(tmp_path / "alone")
    shutil.copytree(uri, alone)
    executors = PicklingExecutors(times=times)

    shared, expected = run(uri, executors, Engine.SPARK), run(alone, None, Engine.LOCAL)

    assert set(executors.stages) == {"compact: rewrite fragments"}
    assert executors.shares[0] > 1
    assert (shared.outcome, expected.outcome) == (JobOutcome.DONE, JobOutcome.DONE)
    assert [each.fragments_added for each in shared.rewrites] == [each.fragments_added for each in expected.rewrites]
    assert contents(BaseTable.open(uri)) == contents(BaseTable.open(alone))
    assert shared.to_dict()["where"] == {"engine": "spark", "reason": "it was asked for"}
    assert run(uri, PicklingExecutors(), Engine.SPARK).outcome is JobOutcome.NOTHING_TO_DO


def test_size_of_what_is_rewritten_decides(uri):
    executors = PicklingExecutors()
    settings = SETTINGS.model_copy(update={"executors": ExecutorSettings(min_bytes=1)})

    report = run(uri, executors, Engine.AUTO, settings)

    assert executors.stages
    assert "at least executors.min_bytes" in str(report.place)
    assert "where: on executors" in str(report.view().notes)


def test_without_executors_nothing_is_rewritten_for_them(uri):
    before = contents(BaseTable.open(uri))

    with pytest.raises(InvalidRequestError, match="this process has none"):
        run(uri, None, Engine.SPARK)

    assert contents(BaseTable.open(uri)) == before


class Corrupting(PicklingExecutors):
    """Fails in one of the tasks, as a task does that meets a damaged file."""

    def map(self, stage, function, shares):
        super().map(stage, function, shares[:1])
        raise CorruptionError("a file is damaged", remedy="none")


def test_task_that_fails_leaves_the_table_as_it_was(uri):
    before = contents(BaseTable.open(uri))

    with pytest.raises(CorruptionError, match="a file is damaged"):
        run(uri, Corrupting(), Engine.SPARK)

    assert contents(BaseTable.open(uri))[:3] == before[:3]
