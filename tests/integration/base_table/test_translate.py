"""Each error that pylance really raises becomes the class that tells the caller what to do."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import LanceNamespace

from memwal_core.base_table import BaseTable, translated
from memwal_core.base_table.translate import decoding, without_doubt
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    InternalError,
    InvalidRequestError,
    MemwalError,
    MissingFileError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from testkit.s3_server import S3Server
from testkit.tables.people import make_people_table, people

REGION = "0a000000-0000-4000-8000-000000000001"


def _upsert(dataset: lance.LanceDataset) -> Any:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.use_index(False).conflict_retries(0)


def _marked(dataset: lance.LanceDataset, *generations: int) -> None:
    marks = [lance.mem_wal.CompactedSsTable(REGION, generation) for generation in generations]
    _upsert(dataset).mark_sstables_as_compacted(marks).execute(people(1))


def _pinned(table: BaseTable) -> None:
    late = table.dataset()
    _upsert(table.dataset()).execute(people(1))
    _upsert(late).execute(people(1))


def _preempted(table: BaseTable) -> None:
    late = table.dataset()
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    late.create_scalar_index("name", "BTREE", name="name_idx")


class _Silent(LanceNamespace):
    """A catalog that takes no version and knows of none."""

    def namespace_id(self) -> str:
        return str(uuid.uuid4())


def _unanswered(table: BaseTable) -> None:
    operation = lance.LanceOperation.UpdateConfig(config_updates=lance.LanceOperation.UpdateMap({"a": "b"}, False))
    lance.LanceDataset.commit(
        table.uri,
        operation,
        read_version=table.state().version,
        max_retries=0,
        namespace_client=_Silent(),
        table_id=["t"],
        namespace_client_managed_versioning=True,
    )


def _rows_gone(table: BaseTable) -> None:
    for info in list(table.store.list_objects("data")):
        table.store.delete(info.path)
    table.dataset().to_table()


def _broken_file(table: BaseTable) -> None:
    for info in list(table.store.list_objects("data")):
        Path(table.uri, info.path).write_bytes(b"x" * 100)
    table.dataset().to_table()


def _cut_file(table: BaseTable) -> None:
    for info in list(table.store.list_objects("data")):
        path = Path(table.uri, info.path)
        path.write_bytes(path.read_bytes()[: info.size_bytes // 2])
    table.dataset().to_table()


def _nobody_listens(_: BaseTable) -> None:
    options = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "client_max_retries": "0"}
    lance.dataset("s3://bucket/t", storage_options={**options, "aws_region": "us-east-1"})


CASES: dict[str, tuple[Callable[[BaseTable], Any], type[MemwalError]]] = {
    "row changed since the pinned version": (_pinned, ConflictError),
    "index built twice": (_preempted, ConflictError),
    "catalog that does not answer": (_unanswered, MemwalError),
    "no table": (lambda table: lance.dataset(table.uri + "-other"), ObjectNotFoundError),
    "no version": (lambda table: lance.dataset(table.uri, version=99), ObjectNotFoundError),
    "data file gone": (_rows_gone, MissingFileError),
    "data file broken": (_broken_file, CorruptionError),
    "data file cut": (_cut_file, CorruptionError),
    "store unreachable": (_nobody_listens, UnavailableError),
    "no place for a table": (lambda _: lance.write_dataset(people(1), "/proc/nothing/t"), InvalidRequestError),
    "file where a directory would be": (
        lambda table: lance.write_dataset(people(1), f"{Path(table.uri).parent}/file/t"),
        InvalidRequestError,
    ),
    "region marked twice": (lambda table: _marked(table.dataset(), 1, 2), InvalidRequestError),
    "key matched twice": (lambda table: _upsert(table.dataset()).execute(people(1, 1)), InvalidRequestError),
    "unknown key column": (lambda table: table.dataset().merge_insert("absent"), InvalidRequestError),
    "other columns": (
        lambda table: _upsert(table.dataset()).execute(people(1).append_column("w", pa.array([1]))),
        InvalidRequestError,
    ),
    "second initialisation": (lambda table: table.dataset().initialize_mem_wal(unsharded=True), InvalidRequestError),
    "unknown column in a filter": (lambda table: table.dataset().to_table(filter="absent = 1"), InvalidRequestError),
}


@pytest.mark.parametrize("case", CASES)
def test_error_that_pylance_raises_is_translated(tmp_path: Path, case: str) -> None:
    provoke, expected = CASES[case]
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    (tmp_path / "file").touch()

    with pytest.raises(expected) as caught, translated("do it", table.uri, extra=7):
        provoke(table)

    assert type(caught.value) is expected or expected is MemwalError
    assert caught.value.__cause__ is not None or case == "store unreachable"
    assert (caught.value.facts["operation"], caught.value.facts["extra"]) == ("do it", 7)
    assert ".rs:" not in str(caught.value)
    assert "?" not in str(caught.value)


@pytest.mark.s3
def test_missing_bucket_is_a_mistake_of_the_caller_and_missing_table_not_found(s3: S3Server) -> None:
    with pytest.raises(InvalidRequestError, match="bucket does not exist"):
        BaseTable.open("s3://absent-bucket/t", storage_options=s3.storage_options)
    with pytest.raises(ObjectNotFoundError):
        BaseTable.open(s3.uri("bucket/absent"), storage_options=s3.storage_options)


@pytest.mark.s3
def test_missing_file_of_a_table_in_a_bucket_is_no_missing_table(s3: S3Server) -> None:
    table = make_people_table(s3.uri("bucket/t"), rows=people(1, 2), storage_options=s3.storage_options)
    opened = BaseTable.open(table.uri, storage_options=s3.storage_options)
    opened.store.delete_directory("data")

    with pytest.raises(MissingFileError), translated("read rows", opened.uri):
        opened.dataset().to_table()


def test_signed_query_in_an_error_does_not_travel_along() -> None:
    text = "LanceError(IO): Generic MicrosoftAzure error: GET https://x/y?sig=SECRET failed"

    with pytest.raises(UnavailableError) as caught, translated("do it", "t"):
        raise OSError(text)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_commit_of_unknown_outcome_is_told_as_such(tmp_path: Path) -> None:
    text = (
        "Wrapped error: Commit result for version 4 is unknown: the commit may or may not have been applied; "
        "check the table state before retrying: it was not found, /build/rust/lance/src/io/commit.rs:1990:36"
    )

    unknown = pytest.raises(CommitUnknownError, match="outcome of the commit is unknown")
    with unknown as caught, translated("commit", "t"):
        raise OSError(text)
    assert ".rs" not in str(caught.value)


def test_doubt_about_a_version_that_was_never_asked_for_is_none() -> None:
    """A full disk was told as a commit of unknown outcome, and the text was cut before it named the disk."""
    text = (
        "Wrapped error: Commit result for version 5 is unknown: the commit may or may not have been applied; check the "
        f"table state before retrying: LanceError(IO): single PUT of {'long/' * 90}1.manifest-5c2351bd failed: "
        "Generic LocalFileSystem error: Unable to open file: No space left on device (os error 28)"
    )
    with pytest.raises(CommitUnknownError) as caught, translated("commit", "t", read_version=4):
        raise OSError(text)

    certain = without_doubt(caught.value, asked_version=4)
    assert type(certain) is UnavailableError
    assert certain.what == "the disk is full"
    assert (certain.facts["operation"], certain.facts["read_version"]) == ("commit", 4)
    assert without_doubt(caught.value, asked_version=5) is caught.value


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Permission denied (os error 13)", StoreRefusedError),
        ("Read-only file system (os error 30)", StoreRefusedError),
        ("No space left on device (os error 28)", UnavailableError),
    ],
)
def test_refusal_of_the_file_system_is_no_silence_of_a_store(reason: str, kind: type[MemwalError]) -> None:
    """It told to back off and retry, which never helped."""
    with pytest.raises(kind, match=r"refused|full"), translated("scan", "t"):
        raise OSError(f"LanceError(IO): Generic LocalFileSystem error: Unable to open file /t/data/a.lance: {reason}")


def test_file_that_may_not_be_read_is_not_damaged() -> None:
    with pytest.raises(UnavailableError), decoding("t"):
        raise OSError("LanceError(IO): Unable to open file /t/data/a.lance: Permission denied (os error 13)")


_ASKED = f"Error performing GET http://127.0.0.1/bucket/{'long/' * 100}a.lance in 2ms, after 1 retries"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("HTTP error: error sending request", UnavailableError),
        ("Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>", UnavailableError),
        ("Server returned non-2xx status code: 403 Forbidden: ", StoreRefusedError),
        ("Server returned non-2xx status code: 404 Not Found: ", CorruptionError),
        ("Server returned non-2xx status code: 416 Range Not Satisfiable: ", CorruptionError),
    ],
)
def test_file_that_the_store_does_not_show_is_not_damaged(answer: str, kind: type[MemwalError]) -> None:
    """At first only silence was none, and only where the address left room for it in what was looked at."""
    with pytest.raises(kind), decoding("t"):
        raise OSError(f"LanceError(IO): Generic N/A error: LanceError(IO): Generic S3 error: {_ASKED} - {answer}")


def test_unforeseen_failure_is_an_internal_error() -> None:
    with pytest.raises(InternalError), translated("do it", "t"):
        raise RuntimeError("something new")


def test_errors_of_this_package_and_programming_errors_pass_unchanged() -> None:
    own = ConflictError("mine", remedy="none")
    with pytest.raises(ConflictError) as caught, translated("do it", "t"):
        raise own
    assert caught.value is own
    with pytest.raises(TypeError), translated("do it", "t"):
        raise TypeError("a mistake")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", range(12))
def test_rotten_data_file_is_damage_and_neither_a_wrong_request_nor_a_silent_store(
    tmp_path: Path, seed: int, version: str
) -> None:
    """Scans said to correct the request, and counts to retry for ever. What panics says to look for damage first."""
    # Few enough rows that two files of them have the same bytes: more are compressed by tables that are drawn.
    names = [f"name {i} {'x' * (i % 50)}" for i in range(800)]
    rows = pa.table({"id": range(800), "name": names, "value": [[i] * (i % 3) for i in range(800)]})
    uri = str(tmp_path / "t")
    lance.write_dataset(rows, uri, data_storage_version=version)
    [path] = Path(uri, "data").iterdir()
    whole, rng = path.read_bytes(), random.Random(seed)

    # A block of the disk, and some bytes of what describes pages and columns at the file's end.
    for length, farthest in ((4096, len(whole)), (1, 3_000), (8, 600), (64, 3_000), (256, 600)):
        begin = max(0, len(whole) - length - rng.randrange(farthest))
        path.write_bytes(whole[:begin] + rng.randbytes(length) + whole[begin + length :])
        dataset = lance.dataset(uri)
        for read in (dataset.to_table, partial(dataset.count_rows, filter="name > 'b' OR value IS NULL")):
            met = _error_of(read)
            assert isinstance(met, CorruptionError | None) or (
                isinstance(met, InternalError) and "panicked" in str(met) and "doctor --deep" in met.remedy
            ), met


def _error_of(read: Callable[[], object]) -> MemwalError | None:
    try:
        with translated("read rows", "t"):
            read()
    except MemwalError as error:
        return error
    return None


def test_version_of_a_new_table_that_lance_does_not_know_is_a_wrong_request(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError), translated("create", "t"):
        lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t"), data_storage_version="9.9")


@pytest.mark.parametrize("filter_sql", ["1 / (id - id) > 0", "cast(name as int) > 5"])
def test_filter_that_fails_on_a_row_is_a_wrong_request(tmp_path: Path, filter_sql: str) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    with pytest.raises(InvalidRequestError, match="applying filter"), translated("read rows", table.uri):
        table.dataset().to_table(filter=filter_sql)
