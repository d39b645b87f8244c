"""Files of a source that are damaged, or that are no files: the batch is refused, and the error names the file."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.source import Source
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.sharing.place import Engine
from memwal_core.region import ManifestStore
from memwal_core.spark.ingest.inputs import read_source
from memwal_core.spark.ingest.watching import unreadable_file
from memwal_core.table import Table
from testkit.tables.people import PEOPLE, make_people_table, people

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
_ROWS = 20_000
_NOISE = bytes(number * 197 % 251 for number in range(40_000))


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"))


def _parquet(path: Path, codec: str = "snappy") -> bytes:
    names = [f"n{number % 977}" for number in range(_ROWS)]
    scores = [float(number) for number in range(_ROWS)]
    pq.write_table(pa.table({"id": range(_ROWS), "name": names, "score": scores}), path, compression=codec)
    return path.read_bytes()


def _pages(path: Path, codec: str = "snappy") -> None:
    whole = _parquet(path, codec)
    path.write_bytes(whole[:2000] + _NOISE[: len(whole) // 4] + whole[2000 + len(whole) // 4 :])


def _footer(path: Path) -> None:
    whole = _parquet(path)
    length = int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole[: -length - 8] + _NOISE[:200] + whole[200 - length - 8 :])


def _cut(path: Path) -> None:
    path.write_bytes(_parquet(path)[:5000])


def _cut_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"id,name,score\n" + b"1,a,1.0\n" * _ROWS)[:-100])


def _empty_beside(path: Path) -> None:
    """Spark passes over a file without bytes."""
    _parquet(path.with_name("whole.parquet"))
    path.write_bytes(b"")


def _gzip_of_noise(path: Path) -> None:
    path.write_bytes(_NOISE)


_DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "pages of Snappy": ("rows.parquet", _pages),
    "pages of Zstandard": ("rows.parquet", lambda path: _pages(path, "zstd")),
    "plain pages": ("rows.parquet", lambda path: path.write_bytes(_NOISE[:60].join((b"PAR1", _parquet(path)[64:])))),
    "footer": ("rows.parquet", _footer),
    "cut": ("rows.parquet", _cut),
    "empty": ("rows.parquet", lambda path: path.write_bytes(b"")),
    "empty beside a whole one": ("rows.parquet", _empty_beside),
    "cut gzip": ("rows.csv.gz", _cut_gzip),
    "no gzip": ("rows.csv.gz", _gzip_of_noise),
}


_QUICK = ("pages of Snappy", "cut", "empty beside a whole one")


@pytest.mark.parametrize(
    "damage", [each if each in _QUICK else pytest.param(each, marks=pytest.mark.slow) for each in _DAMAGES]
)
def test_damaged_file_of_a_source_is_named_and_nothing_is_written(
    table: BaseTable, spark: SparkSession, tmp_path: Path, damage: str
) -> None:
    name, harm = _DAMAGES[damage]
    place = tmp_path / "landing"
    place.mkdir()
    harm(place / name)
    form = SourceFormat.CSV if ".csv" in name else SourceFormat.PARQUET

    for engine in (Engine.SPARK, Engine.AUTO):
        request = IngestRequest(sources=(str(place),), format=form, batch="b", engine=engine)
        with pytest.raises(InvalidRequestError) as refused:
            Table.open(table.uri).run(request)
        assert str(refused.value.facts["file"]).endswith(f"/landing/{name}")
    assert ManifestStore(table.store, table.ids).region_ids() == []


@pytest.mark.parametrize(
    "damage", ["cut", *(pytest.param(each, marks=pytest.mark.slow) for each in ("footer", "noise", "gone", "manifest"))]
)
@pytest.mark.parametrize("engine", [Engine.SPARK, Engine.LOCAL])
def test_damaged_table_as_a_source_is_no_store_that_does_not_answer(
    table: BaseTable, spark: SparkSession, tmp_path: Path, damage: str, engine: Engine
) -> None:
    source = tmp_path / "rows.lance"
    lance.write_dataset(people(*range(_ROWS), name="a" * 30), str(source))
    (path,) = (source / ("_versions" if damage == "manifest" else "data")).glob("*.*a*")
    whole = path.read_bytes()
    damaged = {
        "cut": whole[: len(whole) // 2],
        "footer": whole[:-100] + _NOISE[:100],
        "noise": _NOISE[: len(whole) - 300] + whole[-300:],
        "manifest": whole[:20] + _NOISE[: len(whole) - 20],
    }
    path.write_bytes(damaged[damage]) if damage in damaged else path.unlink()

    with pytest.raises(InvalidRequestError, match="source"):
        Table.open(table.uri).run(IngestRequest(sources=(str(source),), batch="b", engine=engine))

    assert ManifestStore(table.store, table.ids).region_ids() == []


@pytest.mark.parametrize("kind", ["pipe", "pipe by its address", "pipe within", "link", "link to a directory"])
@pytest.mark.parametrize("engine", [Engine.SPARK, Engine.LOCAL])
def test_entry_of_a_source_that_is_no_file_of_its_own_is_refused_before_it_is_opened(
    table: BaseTable, spark: SparkSession, tmp_path: Path, kind: str, engine: Engine
) -> None:
    place = tmp_path / "landing"
    place.mkdir()
    _parquet(tmp_path / "elsewhere.parquet")
    source = str(place)
    match kind:
        case "pipe" | "pipe by its address":
            os.mkfifo(place / "rows.parquet")
            source = f"{'file:' if kind != 'pipe' else ''}{place}/rows.parquet"
        case "pipe within":
            os.mkfifo(place / "rows.parquet")
        case "link":
            (place / "rows.parquet").symlink_to(tmp_path / "elsewhere.parquet")
        case _:
            (place / "day=1").symlink_to(tmp_path)

    request = IngestRequest(sources=(source,), format=SourceFormat.PARQUET, batch="b", engine=engine)
    with pytest.raises(InvalidRequestError, match="no file of its own"):
        Table.open(table.uri).run(request)


def test_place_that_is_itself_a_link_is_what_the_caller_named(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "landing"
    place.mkdir()
    _parquet(place / "rows.parquet")
    (tmp_path / "today").symlink_to(place)

    assert read_source(spark, Source([str(tmp_path / "today")], SourceFormat.PARQUET), PEOPLE).count() == _ROWS


@pytest.mark.parametrize(
    ("cause", "named"),
    [
        ("java.io.IOException: FAILED_TO_UNCOMPRESS(5)", "s3a://b/a.parquet"),
        ("java.net.SocketTimeoutException: Read timed out", None),
        ("software.amazon.awssdk.core.exception.SdkClientException: Unable to execute", None),
        ("org.apache.hadoop.fs.s3a.AWSClientIOException: getObject", None),
    ],
)
def test_store_that_does_not_answer_is_no_damage(cause: str, named: str | None) -> None:
    said = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/a.parquet.  SQLSTATE: KD001\n"

    assert unreadable_file(Py4JError(f"{said}\tat org.apache.spark\nCaused by: {cause}")) == named
