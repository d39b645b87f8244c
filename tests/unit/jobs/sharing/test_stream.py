"""What tasks yield, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.jobs.sharing.place import Engine, Work, Workplace
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.pickling_executors import PicklingExecutors, pickled
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

done: list[int] = []
"""By tasks of this process."""


def halves(context: JobContext, number: int) -> Iterator[tuple[str, int]]:
    for half in (number, -number):
        done.append(half)
        yield context.opened.uri, half


def sharing_of(uri: str, executors: Executors | None) -> Sharing:
    return Sharing(JobContext(Table.open(uri).opened, executors=executors), Engine.SPARK, MergeRequest(dry_run=True))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    done.clear()
    return make_people_table(str(tmp_path / "t"), rows=people(1)).uri


def test_results_come_one_by_one_in_this_process(uri: str) -> None:
    """Files that were noted as theirs are removed, although a later task fails."""
    found = sharing_of(uri, None).stream("halve", halves, [1, 2])
    assert done == []
    assert (next(found), done) == ((uri, 1), [1])
    assert list(found) == [(uri, -1), (uri, 2), (uri, -2)]


def test_results_come_from_executors_in_order(uri: str) -> None:
    executors = PicklingExecutors()
    sharing = sharing_of(uri, executors)
    sharing.choose(Work())
    assert list(sharing.stream("halve", halves, [1, 2])) == [(uri, 1), (uri, -1), (uri, 2), (uri, -2)]
    assert (executors.stages, executors.shares) == (["merge: halve"], [2])


def test_part_of_a_run_may_be_done_at_another_place(uri: str) -> None:
    executors = PicklingExecutors()
    sharing = sharing_of(uri, executors)
    sharing.choose(Work())
    here = sharing.at(Workplace(False, "a test"))
    assert list(here.stream("halve", halves, [1])) == [(uri, 1), (uri, -1)]
    assert (executors.stages, here.slots, sharing.slots) == ([], 1, 2)


def test_generations_that_a_survey_opened_do_not_travel(uri: str) -> None:
    write_native_generations(uri, native_region_id(1), [[Put(people(1))]])
    (manifest,) = OpenTable.at(uri, settings=Settings()).manifests.load_many([native_region_id(1)])
    address = f"{uri}/_mem_wal/{native_region_id(1)}/{manifest.flushed_generations[0].path}"
    opened = OpenedGenerations({}, most=1)
    kept = opened.look(address)
    assert pickled(opened).take(address) is not kept
    assert opened.take(address) is kept
    assert opened.take(address) is not kept
