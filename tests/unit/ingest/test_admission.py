"""The check of a batch's rows and their division by region."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.admission import RowAdmission
from testkit.tables.people import make_people_table, people


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> BaseTable:
    directory: Path = tmp_path_factory.mktemp("intake")
    return make_people_table(str(directory / "people.lance"))


@pytest.fixture(scope="module")
def admission(table: BaseTable) -> RowAdmission:
    return RowAdmission.of(table, delete_column="gone")


def _batch(*ids: int | None) -> pa.Table:
    return pa.table(
        {
            "score": [0.5] * len(ids),
            "gone": pa.array([None] * len(ids), pa.bool_()),
            "name": pa.array(["x" * 100] * len(ids)),
            "id": pa.array(ids, pa.int32()),
        }
    )


def test_every_row_goes_to_the_region_that_a_table_writer_gives_it(table: BaseTable, admission: RowAdmission) -> None:
    along = pa.table({"place": list(range(1000))})

    parts = pickle.loads(pickle.dumps(admission)).examine(_batch(*range(1000)), along).parts

    routed = {
        part.value: set(part.rows.column("id").to_pylist()) for part in admission.router.route(people(*range(1000)))
    }
    assert {admission.value_of(value): set(rows.column("id").to_pylist()) for value, rows in parts} == routed
    for value, rows in parts:
        assert admission.text_of(admission.value_of(value)) == value
        assert rows.column("place").to_pylist() == rows.column("id").to_pylist()
        assert rows.column("_tombstone").to_pylist() == [False] * rows.num_rows
        assert rows.schema.field("id").type == pa.int32()


@pytest.mark.req("WRT-27")
def test_rows_without_a_key_are_counted_and_shown(admission: RowAdmission) -> None:
    examined = admission.examine(_batch(1, None, 3, None))

    assert examined.parts == ()
    assert examined.problem is not None
    assert (examined.problem.column, examined.problem.rows) == ("id", 2)
    assert examined.problem.samples[0] == {"id": "NULL", "score": "0.5", "name": "x" * 60 + "..."}


def test_rows_that_fit_only_one_by_one_are_all_counted(admission: RowAdmission) -> None:
    """A problem without a bad row passed for none, and the batch was recorded as done with nothing written."""
    kind = pa.dictionary(pa.int8(), pa.string())
    crowded = replace(admission, schema=admission.schema.set(1, pa.field("name", kind)))
    rows = _batch(*range(300)).set_column(2, "name", pa.array([f"name {number}" for number in range(300)]))

    examined = crowded.examine(rows)

    assert examined.problem is not None
    assert (examined.problem.column, examined.problem.rows) == ("name", 300)


@pytest.mark.parametrize(
    ("schema", "fact"),
    [
        (_batch().schema.remove(0), "missing"),
        (_batch().schema.append(pa.field("extra", pa.int8())), "unknown"),
        (_batch().schema.set(2, pa.field("name", pa.float64())), "column"),
        (_batch().schema.remove(1), "delete_column"),
        (_batch().schema.set(1, pa.field("gone", pa.int8())), "delete_column"),
    ],
)
def test_columns_and_types_are_refused_before_a_row_is_read(
    admission: RowAdmission, schema: pa.Schema, fact: str
) -> None:
    admission.check_schema(_batch().schema)

    with pytest.raises(InvalidRequestError) as caught:
        admission.check_schema(schema)
    assert caught.value.facts[fact]


def test_a_column_of_the_table_cannot_tell_deletes(table: BaseTable) -> None:
    with pytest.raises(InvalidRequestError, match="is a column of the table"):
        RowAdmission.of(table, delete_column="name")
