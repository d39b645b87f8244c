"""A pass that is too small for executors is done by the driver itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table.commit.row_changes import FragmentChange
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.job import MergeExecutors
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.work.units import SearchUnit, WriteUnit, WrittenUnit
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import MergeSettings, Settings
from memwal_core.table import Table
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, people


class Busy:
    """Executors that must not be asked."""

    executors = 8
    stages = True

    def write(self, units: Sequence[WriteUnit], staging: str) -> Iterator[WrittenUnit]:
        raise AssertionError("the executors were asked to write")

    def search(self, units: Sequence[SearchUnit]) -> Iterator[FragmentChange]:
        raise AssertionError("the executors were asked to search")


def make_table(uri: str, *, deletes: bool) -> None:
    lance.write_dataset(people(*range(20)), uri)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    gone = Delete(pa.table({"id": [3]}, schema=pa.schema([PEOPLE.field("id")])))
    write_native_generations(uri, native_region_id(1), [[Put(people(100, name="new")), *([gone] if deletes else [])]])


@pytest.mark.parametrize(("deletes", "how", "rows"), [(False, "joined by Lance", 21), (True, "in units", 20)])
def test_small_pass_leaves_executors_alone(tmp_path, deletes, how, rows):
    uri = str(tmp_path / "t")
    make_table(uri, deletes=deletes)

    report = Table.open(uri).run(MergeRequest(), executors=MergeExecutors(workers=Busy()))

    assert (report.outcome, report.strategy) == (JobOutcome.DONE, "in_process")
    assert how in report.strategy_reason
    assert lance.dataset(uri).count_rows() == rows


def test_pass_of_the_size_for_executors_goes_to_them(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, deletes=False)
    settings = Settings(merge=MergeSettings(executors_min_bytes=1))

    with pytest.raises(AssertionError, match="executors were asked to write"):
        Table.open(uri, settings=settings).run(MergeRequest(), executors=MergeExecutors(workers=Busy()))


def test_dry_run_says_where_the_run_would_be_done_and_what_it_lacks(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, deletes=False)
    table = Table.open(uri)

    report = table.run(MergeRequest(engine="spark", dry_run=True))

    assert (report.strategy, report.plan.strategy.name) == ("executors", "executors")
    assert report.strategy_reason == "it was asked for, but this process has none"
    with pytest.raises(InvalidRequestError, match="this process has none"):
        table.run(MergeRequest(engine="spark"))
    asked = table.run(MergeRequest(engine="spark", dry_run=True), executors=MergeExecutors(workers=Busy()))
    assert asked.strategy_reason == "it was asked for, by the run or by merge.strategy"


@pytest.mark.parametrize(("key", "column"), [('my "id"', "n"), ("id", "__action"), ("id", "__merge_source_sentinel")])
def test_columns_that_lance_cannot_join_by_their_names_are_merged_in_units(tmp_path, key, column):
    schema = pa.schema([pa.field(key, pa.string(), nullable=False), pa.field(column, pa.int64())])
    table = Table.create(str(tmp_path / "t"), schema, key=key)
    for value in (1, 2):
        with table.writer() as writer:
            writer.put(pa.table({key: ["a", str(value)], column: [value, value]}, schema=schema))
            writer.flush()
        assert table.run(MergeRequest()).outcome is JobOutcome.DONE

    merged = lance.dataset(table.uri).to_table().sort_by(key)
    assert merged.to_pydict() == {key: ["1", "2", "a"], column: [1, 2, 2]}
