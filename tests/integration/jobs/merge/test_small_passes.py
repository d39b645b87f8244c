"""A pass that is too small for executors is done by the driver itself."""

from __future__ import annotations

from typing import Never

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import MergeSettings, Settings
from memwal_core.table import Table
from testkit.pickling_executors import PicklingExecutors
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, people


class Busy(PicklingExecutors):
    """Executors that must not be asked."""

    def map(self, stage: str, function: object, shares: object) -> Never:
        raise AssertionError(f"the executors were asked to {stage}")


def make_table(uri: str, *, deletes: bool) -> None:
    lance.write_dataset(people(*range(20)), uri)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    gone = Delete(pa.table({"id": [3]}, schema=pa.schema([PEOPLE.field("id")])))
    write_native_generations(uri, native_region_id(1), [[Put(people(100, name="new")), *([gone] if deletes else [])]])


@pytest.mark.parametrize(("deletes", "how", "rows"), [(False, "joined by Lance", 21), (True, "in units", 20)])
def test_small_pass_leaves_executors_alone(tmp_path, deletes, how, rows):
    uri = str(tmp_path / "t")
    make_table(uri, deletes=deletes)

    report = Table.open(uri).run(MergeRequest(), executors=Busy())

    assert (report.outcome, report.place.on_executors) == (JobOutcome.DONE, False)
    assert report.place.reason.endswith(" take less time than tasks take to begin")
    assert how in report.strategy.reason
    assert lance.dataset(uri).count_rows() == rows


def test_pass_of_the_size_for_executors_goes_to_them(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, deletes=False)
    settings = Settings(merge=MergeSettings(executors_min_bytes=1))

    with pytest.raises(AssertionError, match="executors were asked to merge: write winners"):
        Table.open(uri, settings=settings).run(MergeRequest(), executors=Busy())


def test_dry_run_says_where_the_run_would_be_done_and_what_it_lacks(tmp_path):
    uri = str(tmp_path / "t")
    make_table(uri, deletes=False)
    table = Table.open(uri)

    report = table.run(MergeRequest(engine="spark", dry_run=True))

    assert report.to_dict()["where"] == {
        "engine": "spark",
        "reason": "it was asked for, but this process has none",
    }
    assert report.plan.place == report.place
    assert report.view().notes[-1] == "where: on executors: it was asked for, but this process has none"
    with pytest.raises(InvalidRequestError, match="this process has none"):
        table.run(MergeRequest(engine="spark"))
    asked = table.run(MergeRequest(engine="spark", dry_run=True), executors=Busy())
    assert asked.to_dict()["where"] == {"engine": "spark", "reason": "it was asked for"}


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
