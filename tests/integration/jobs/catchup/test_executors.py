"""Indexes whose segments executors build answer as those that one process extends."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from memwal_core.base_table import BaseTable, read_coverage, vector_model_digest
from memwal_core.errors import UnavailableError
from memwal_core.jobs.catchup.report import CatchupReport
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.jobs.sharing.place import Engine
from memwal_core.table import Table
from testkit.pickling_executors import PicklingExecutors
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import native_region_id

A = native_region_id(1)
WHOLE = "Whole Title article7"
NAMES = ["id_idx", "title_idx", "topic_idx", "vec_idx"]
TEXT_FIRST = [f"catchup: build {name}" for name in sorted(NAMES, key=lambda name: name != "title_idx")]
"""The segments of a text index take longest to join, which goes on while executors build the others."""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Four fragments that no index covers: BTREE, INVERTED, BITMAP and IVF_PQ."""
    made = make_articles_table(str(tmp_path / "t"), maintained=["title_idx", "vec_idx"])
    for generation in range(1, 5):
        merge_natively(made, articles(1950 + 30 * generation, 50, name=f"gen{generation}"), {A: generation})
    return made.uri


def run(uri: str, executors: Executors | None, engine: Engine) -> CatchupReport:
    report = Table.open(uri).run(CatchupRequest(engine=engine), executors=executors)
    assert isinstance(report, CatchupReport)
    return report


def answers(uri: str) -> list[object]:
    """Return what each index finds, of old and new rows."""
    dataset = BaseTable.open(uri).dataset()
    vector = np.asarray(dataset.to_table(columns=["vec"], filter="id = 2050")["vec"][0].as_py(), np.float32)
    near = dataset.to_table(columns=["id"], nearest={"column": "vec", "q": vector, "k": 20, "nprobes": 4})
    texts = dataset.scanner(full_text_query="gen3", columns=["id"]).to_table()
    return [
        sorted(near["id"].to_pylist()),
        sorted(texts["id"].to_pylist()),
        dataset.to_table(columns=["id"], filter="id IN (3, 2050, 2119)")["id"].to_pylist(),
        dataset.to_table(columns=["topic", "id"], filter="topic = 'gen4'").sort_by("id").to_pydict(),
    ]


@pytest.mark.parametrize(("slots", "times"), [(1, 1), (4, 2)])
def test_executors_extend_what_one_process_extends(tmp_path, uri, slots, times):
    alone = str(tmp_path / "alone")
    shutil.copytree(uri, alone)
    table = BaseTable.open(uri)
    model = vector_model_digest(table, table.state().version, "vec_idx")
    executors = PicklingExecutors(slots, times=times)

    shared, expected = run(uri, executors, Engine.SPARK), run(alone, None, Engine.LOCAL)

    assert executors.stages == TEXT_FIRST
    assert executors.shares == [slots] * len(NAMES)
    assert shared.outcome is expected.outcome is JobOutcome.DONE
    assert shared.version_after == shared.version_before + 1
    for name in NAMES:
        [mine], [theirs] = ([each for each in report.indexes if each.name == name] for report in (shared, expected))
        assert (mine.result, mine.rows_indexed, mine.segments, mine.caught_up_through) == (
            theirs.result,
            theirs.rows_indexed,
            theirs.segments,
            theirs.caught_up_through,
        )
    state = table.state()
    assert all(not each.unindexed_fragments for each in read_coverage(table, state.version).indexes)
    assert vector_model_digest(table, state.version, "vec_idx") == model
    assert answers(uri) == answers(alone)
    assert state.details is not None
    assert state.details.merged_generations == {A: 4}
    assert shared.to_dict()["where"] == {"engine": "spark", "reason": "it was asked for"}
    assert run(uri, PicklingExecutors(), Engine.SPARK).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("CAT-12")
def test_executors_build_with_the_tokenizer_of_the_index(uri):
    table = BaseTable.open(uri)
    table.dataset().create_scalar_index(
        "title", "INVERTED", name="title_idx", base_tokenizer="raw", with_position=True, stem=False, lower_case=False
    )
    before = {each.name: each.details for each in table.dataset().describe_indices()}["title_idx"]
    merge_natively(table, articles(2100, 50, name="Whole Title"), {A: 5})
    executors = PicklingExecutors(2)

    report = run(uri, executors, Engine.SPARK)

    assert report.outcome is JobOutcome.DONE
    assert "title_idx" in executors.stages[0]
    after = {each.name: each.details for each in table.dataset().describe_indices()}["title_idx"]
    assert after == before
    # As one token, a title is found whole and by none of its words.
    found = [table.dataset().scanner(full_text_query=each).to_table().num_rows for each in ("Whole", WHOLE)]
    assert found == [0, 1]
    assert not any(each.unindexed_fragments for each in read_coverage(table, table.state().version).indexes)


class Overtaking(PicklingExecutors):
    """Lets a merge land while the first index is built."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri = uri

    def map(self, stage, function, shares):
        found = super().map(stage, function, shares)
        if len(self.stages) == 1:
            merge_natively(BaseTable.open(self._uri), articles(2100, 10, name="late"), {A: 5})
        return found


def test_merge_that_lands_meanwhile_is_indexed_before_it_counts(uri):
    executors = Overtaking(uri)

    report = run(uri, executors, Engine.SPARK)

    assert report.outcome is JobOutcome.DONE
    assert executors.stages == [*TEXT_FIRST, *(f"catchup: build {name}" for name in NAMES)]
    assert {each.attempts for each in report.indexes} == {2}
    table = BaseTable.open(uri)
    state = table.state()
    assert state.details is not None
    assert all(state.details.index_catchup[name] == {A: 5} for name in NAMES)
    assert all(not each.unindexed_fragments for each in read_coverage(table, state.version).indexes)


class Failing(PicklingExecutors):
    """Cannot build one of the indexes."""

    def map(self, stage, function, shares):
        if "title_idx" in stage:
            raise UnavailableError("the executors did not finish their work", remedy="run it again", stage=stage)
        return super().map(stage, function, shares)


def test_index_that_executors_cannot_build_stays_behind_alone(uri):
    report = run(uri, Failing(), Engine.SPARK)

    assert report.outcome is JobOutcome.CONFLICT
    assert {each.name: str(each.result) for each in report.indexes} == {
        name: "conflict" if name == "title_idx" else "extended" for name in NAMES
    }
    table = BaseTable.open(uri)
    covered = read_coverage(table, table.state().version).indexes
    assert [each.name for each in covered if each.unindexed_fragments] == ["title_idx"]
