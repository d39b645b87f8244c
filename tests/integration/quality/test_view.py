"""What readers see against what they must see: equal on sound tables, unequal when something beside the rows lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import CorruptionError
from memwal_core.format.paths import generation_path
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.key_filter import KEY_FILTER_NAME
from memwal_core.quality.checks.view import ABSENT, Sight, ViewSights
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.key_filters import forget_keys
from testkit.tables.people import PEOPLE, make_people_table, people, quality_of


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    """Keys 0 to 29; 10 to 19 are written anew, 3, 12 and 28 deleted, in two generations of each region."""
    made = make_people_table(str(tmp_path / "t"), rows=people(*range(20)), buckets=2)
    with TableWriter.open(made) as writer:
        writer.put(people(*range(10, 30), name="new"))
        writer.flush()
        writer.delete(pa.table({"id": [3, 12, 28]}, schema=pa.schema([PEOPLE.field("id")])))
        writer.put(people(4, 5, 6, 7, name="newer"))
        writer.flush()
    return made


def look(table: BaseTable) -> ViewSights:
    return quality_of(Table.open(table.uri)).look_at_view()


def wrong(found: ViewSights) -> list[Sight]:
    return [sight for sight in found.sights if sight.seen != sight.expected]


def generation_directories(table: BaseTable) -> list[list[Path]]:
    manifests = Table.open(table.uri).opened.manifests
    regions = [manifests.load(region_id) for region_id in manifests.region_ids()]
    return [
        [Path(table.uri) / generation_path(region.region_id, each.path) for each in region.flushed_generations]
        for region in regions
    ]


def test_sound_table_shows_what_it_must_before_and_after_the_merge(table: BaseTable) -> None:
    before = look(table)
    Table.open(table.uri).run(MergeRequest())
    after = look(table)

    assert (before.generations, after.generations) == (4, 0)
    assert wrong(before) == wrong(after) == []
    assert before.sights[0] == Sight("rows", "27", "27")
    asked = {sight.question: sight.expected for sight in before.sights}
    assert asked["key [12]"] == ABSENT
    assert "'newer'" in asked["key [5]"]
    assert "'new'" in asked["key [20]"]
    assert len(asked) == 31  # the count, every key, and those that are gone


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "Nowhere/Land")], ids=str)
def test_times_that_python_does_not_have_are_compared(tmp_path: Path, kind: pa.DataType) -> None:
    """A date beyond the year 9999 ended the whole check."""
    numbers = pa.array([2 ** (kind.bit_width - 2), 0, None, 1], pa.int32() if kind.bit_width == 32 else pa.int64())
    at = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2, 3, 4], numbers.cast(kind))], ["times"])
    rows = pa.table({"id": [1, 2, 3, 4], "at": numbers.cast(kind), "nested": at})
    table = Table.create(str(tmp_path / "times"), rows.schema, key="id")
    with table.writer() as writer:
        writer.put(rows)
        writer.flush()
        table.run(MergeRequest())
        writer.put(rows.slice(1, 2))

    found = look(table.base)

    assert len(found.sights) == 5
    assert wrong(found) == []


def test_filter_of_another_generation_is_recognised_and_hides_nothing(table: BaseTable) -> None:
    for first, second in generation_directories(table):
        shutil.copy(second / KEY_FILTER_NAME, first / KEY_FILTER_NAME)

    assert wrong(look(table)) == []


def test_filter_that_lacks_keys_hides_rows_and_is_found(tmp_path: Path) -> None:
    made = make_people_table(str(tmp_path / "large"), rows=people(*range(400)), buckets=2)
    with TableWriter.open(made) as writer:
        writer.put(people(*range(400), name="new"))
        writer.flush()
    for (only,) in generation_directories(made):
        assert forget_keys(made.uri, only, "id") > 0

    found = wrong(look(made))

    assert found
    assert all("'new'" in sight.expected and "'new'" not in sight.seen for sight in found)


def test_missing_generation_is_damage_and_no_passing_fault(table: BaseTable) -> None:
    shutil.rmtree(generation_directories(table)[0][0])

    with pytest.raises(CorruptionError, match="a file that readers need is missing"):
        look(table)


def test_samples_are_bounded(table: BaseTable) -> None:
    quality = quality_of(Table.open(table.uri))
    quality.settings = quality.settings.model_copy(update={"sample_keys": 2})

    assert len(quality.look_at_view().sights) <= 1 + 2 + 2 * 2 + 2 * 2
