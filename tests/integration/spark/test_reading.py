"""The reading half of the data source in this process, every hand-over pickled as Spark does it."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader import Consistency
from memwal_core.reader.opened import GenerationGoneError
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.spec import bucket_spec
from memwal_core.spark.types import FRESHNESS_FIELD
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.spark_source import LoadedFrame
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people
from testkit.tables.readable import as_model, keys_of
from tests.integration.spark.layered import make_layered_table


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("layered") / "t")
    make_layered_table(uri)
    return uri


def expected(uri: str, consistency: str, **request: object) -> list[dict[str, object]]:
    table = Table.open(uri).to_arrow(ScanRequest(**request), consistency=Consistency(consistency))
    return sorted(table.to_pylist(), key=str)


@pytest.mark.req("RD-69", "RD-01", "RD-05", "RD-06")
@pytest.mark.parametrize("consistency", ["snapshot", "latest", "durable"])
@pytest.mark.parametrize(
    ("options", "least_parts"),
    [({}, 2), ({"key_bytes": 1}, 2), ({"partition_rows": 30}, 4), ({"batch_rows": 7, "partition_rows": 100}, 3)],
    ids=["plain", "rounds", "small parts", "small batches"],
)
def test_parts_together_have_the_rows_of_a_scan(
    layered: str, consistency: str, options: dict[str, int], least_parts: int
) -> None:
    frame = LoadedFrame(uri=layered, consistency=consistency, **options)

    parts = frame.parts()

    assert sorted(pa.concat_tables(parts).to_pylist(), key=str) == expected(layered, consistency)
    assert len(parts) >= least_parts
    stated = json.loads(frame.schema[0].metadata[FRESHNESS_FIELD])
    assert stated["achieved"] == ("latest" if consistency == "snapshot" else consistency)  # none was published
    assert stated["base_version"] == BaseTable.open(layered).state().version


@pytest.mark.req("RD-39", "RD-40")
@pytest.mark.parametrize("key_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    "filter_sql", ["name = 'p150'", "name LIKE 'p%' AND id < 60", "id IN (1, 2, 55, 100)", "name = 'merged'"]
)
def test_filter_judges_the_newest_version_only(layered: str, filter_sql: str, key_bytes: int) -> None:
    frame = LoadedFrame(uri=layered, consistency="durable", filter=filter_sql, columns="name,_gen", key_bytes=key_bytes)

    assert sorted(frame.rows().to_pylist(), key=str) == expected(
        layered, "durable", columns=("name", "_gen"), filter_sql=filter_sql
    )


def test_filter_on_the_key_leaves_regions_out(layered: str) -> None:
    every = LoadedFrame(uri=layered, partition_rows=1)
    one = LoadedFrame(uri=layered, partition_rows=1, filter="id = 55")

    assert [row["id"] for row in one.rows().to_pylist()] == [55]
    fragments = 2 + 1  # two written by hand, one by the merge
    assert len(every.parts()) > fragments + 1
    assert len(one.parts()) == fragments + 1


def test_frame_shows_the_moment_of_its_load_until_it_is_loaded_again(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_layered_table(uri)
    frame = LoadedFrame(uri=uri)
    before = sorted(frame.rows().to_pylist(), key=str)

    with TableWriter.open(BaseTable.open(uri), takeover="fence") as writer:
        writer.put(people(*range(500, 520), 3, name="later"))
        writer.flush()
    Table.open(uri).run(MergeRequest())

    assert sorted(frame.rows().to_pylist(), key=str) == before
    assert sorted(LoadedFrame(uri=uri).rows().to_pylist(), key=str) == expected(uri, "latest")


@pytest.mark.req("RD-13")
def test_collected_generation_fails_instead_of_giving_old_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_layered_table(uri)
    frame = LoadedFrame(uri=uri)
    for directory in Path(uri, "_mem_wal").glob("*/*_gen_3"):
        shutil.rmtree(directory)

    with pytest.raises(GenerationGoneError, match="next:"):
        frame.rows()


@pytest.mark.req("RD-16")
def test_old_version_is_read_with_its_own_snapshot(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_layered_table(uri)
    Table.open(uri).run(SnapshotRequest())
    version = BaseTable.open(uri).state().version
    past = expected(uri, "latest")
    Table.open(uri).run(MergeRequest())
    with TableWriter.open(BaseTable.open(uri), takeover="fence") as writer:
        writer.put(people(7, name="later"))
        writer.flush()

    assert sorted(LoadedFrame(uri=uri, version=version).rows().to_pylist(), key=str) == past
    assert as_model(LoadedFrame(uri=uri, version=1, view="base").rows()) == {key: f"p{key}" for key in range(100)}


def test_views_show_base_regions_generations_and_history(layered: str) -> None:
    base = LoadedFrame(uri=layered, view="base").rows()
    assert base.num_rows == 201
    assert "flushed" not in base.column("name").to_pylist()

    regions = LoadedFrame(uri=layered, view="regions", consistency="durable").rows().to_pylist()
    assert len(regions) == 4
    assert all(region["merged_generation"] == 1 for region in regions)
    assert all(region["last_wal_id"] >= region["replay_after_wal_id"] > 0 for region in regions)
    assert {region["consistency"] for region in regions} == {"durable"}
    assert all(region["unmerged_generations"] >= 1 for region in regions)

    generations = LoadedFrame(uri=layered, view="generations", consistency="durable").rows().to_pylist()
    assert {row["kind"] for row in generations} == {"flushed", "wal"}
    unmerged = [row for row in generations if not row["is_merged"] and row["kind"] == "flushed"]
    assert sum(row["physical_rows"] for row in unmerged) == sum(region["unmerged_rows"] for region in regions)

    history = LoadedFrame(uri=layered, view="history")
    assert "outcome" in history.schema.fieldNames()
    assert history.rows().num_rows == Table.open(layered).history().num_rows


def test_tables_of_pylance_and_tables_without_regions_are_read(tmp_path: Path) -> None:
    native, plain = str(tmp_path / "native"), str(tmp_path / "plain")
    make_people_table(native, rows=people(*range(20)))
    deleted = pa.table({"id": [3]}, schema=pa.schema([people(1).schema.field("id")]))
    write_native_generations(native, native_region_id(1), [[Put(people(1, 2, name="x"))], [Delete(deleted)]])
    lance.write_dataset(people(1, 2), plain)

    found = as_model(LoadedFrame(uri=native).rows())
    assert found == {key: "x" if key in {1, 2} else f"p{key}" for key in range(20) if key != 3}
    assert as_model(LoadedFrame(uri=plain).rows()) == {1: "p1", 2: "p2"}


def test_every_type_arrives_as_the_nearest_type_of_spark(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC).replace(tzinfo=None)
    columns = {
        "key": pa.array(["a", "b"], pa.large_string()),
        "u8": pa.array([255, None], pa.uint8()),
        "u64": pa.array([2**64 - 1, 1], pa.uint64()),
        "half": pa.array(np.array([1.5, 2.5], np.float16)),
        "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        "day": pa.array([moment.date(), None], pa.date32()),
        "local": pa.array([moment, None], pa.timestamp("ns")),
        "utc": pa.array([moment, None], pa.timestamp("ms", tz="UTC")),
        "blob": pa.array([b"x", None], pa.large_binary()),
        "nested": pa.array(
            [{"a": 1, "b": ["x"]}, None], pa.struct({"a": pa.uint16(), "b": pa.large_list(pa.string())})
        ),
        "cents": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(10, 2)),
    }
    names = list(columns)
    fields = [pa.field(name, columns[name].type, name != "key") for name in names]
    schema = pa.schema([fields[0].with_metadata(PRIMARY_KEY_METADATA), *fields[1:]])
    rows = pa.Table.from_arrays(list(columns.values()), schema=schema)
    uri = str(tmp_path / "t")
    lance.write_dataset(rows.slice(0, 1), uri)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "key", table.state().field_ids, 2)])
    with TableWriter.open(table) as writer:
        writer.put(rows.slice(1))
        writer.flush()

    found = LoadedFrame(uri=uri).rows().sort_by("key").to_pylist()

    utc = moment.replace(tzinfo=datetime.UTC, microsecond=0)
    assert found[0] == {
        "key": "a",
        "u8": 255,
        "u64": decimal.Decimal(2**64 - 1),
        "half": 1.5,
        "vector": [1.0, 2.0],
        "day": moment.date(),
        "local": moment,
        "utc": utc,
        "blob": b"x",
        "nested": {"a": 1, "b": ["x"]},
        "cents": decimal.Decimal("1.25"),
    }
    assert {name for name, value in found[1].items() if value is not None} == {"key", "u64", "half"}


def test_decimals_that_spark_lacks_are_named_and_the_other_columns_are_read(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("wide", pa.decimal256(39, 0)), ("price", pa.decimal256(38, 2))])
    table = Table.create(str(tmp_path / "t"), schema, key="id", buckets=1)
    with table.writer() as writer:
        writer.put(pa.table({"id": [1], "wide": [decimal.Decimal(10**38)], "price": [decimal.Decimal("1.25")]}, schema))
        writer.flush()

    with pytest.raises(InvalidRequestError, match="no type for a column") as refused:
        LoadedFrame(uri=table.base.uri).rows()

    assert refused.value.facts["column"] == "wide"
    [row] = LoadedFrame(uri=table.base.uri, columns="id,price").rows().to_pylist()
    assert row == {"id": 1, "price": decimal.Decimal("1.25")}


def test_given_schema_chooses_columns_and_must_fit(layered: str) -> None:
    chosen = StructType([StructField("name", StringType()), StructField("id", LongType(), nullable=False)])
    assert as_model(LoadedFrame(chosen, uri=layered).rows()) == as_model(LoadedFrame(uri=layered).rows())

    with pytest.raises(InvalidRequestError, match="does not fit"):
        LoadedFrame(StructType([StructField("id", StringType())]), uri=layered).rows()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nonsense": "1"}, "does not know"),
        ({"consistency": "in_process"}, "MemTables of another process"),
        ({"consistency": "strong"}, "unknown value"),
        ({"columns": "id,nothing"}, "do not exist"),
        ({"columns": "id,id"}, "distinct names"),
        ({"version": "0"}, "whole number"),
        ({"version": "1", "consistency": "durable"}, "old version"),
        ({"view": "regions", "filter": "id = 1"}, "does not heed"),
        ({"view": "history", "version": "1"}, "does not heed"),
        ({"view": "base", "consistency": "durable"}, "does not heed"),
        ({"filter": "id = 1 LIMIT 1"}, "goes on behind its condition"),
        ({"path": "/elsewhere"}, "named exactly once"),
    ],
)
def test_wrong_option_is_refused_with_what_to_do(layered: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as raised:
        LoadedFrame(uri=layered, **options)
    assert raised.value.remedy


def test_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="nowhere"):
        LoadedFrame(uri=str(tmp_path / "nowhere"))


def test_keys_deleted_everywhere_leave_an_empty_frame(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1, 2))
    with TableWriter.open(table) as writer:
        writer.delete(keys_of(1, 2))
        writer.flush()

    assert LoadedFrame(uri=uri).rows().num_rows == 0
