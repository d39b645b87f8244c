"""`memwal create`, `enable`, `add-spec`, `schema`, `head`, `count`, `lookup`: a new table, and what is in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table

ROWS = pa.table(
    {"id": [1, 2, 3], "tenant": ["a", "b", None], "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2))}
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "100"})


def done(*arguments: object) -> Any:
    ended = run(*arguments, "--json")
    assert ended.exit_code == 0, (ended.output, ended.exception)
    return json.loads(ended.stdout)


def refusal(*arguments: object) -> InvalidRequestError:
    ended = run(*arguments)
    assert isinstance(ended.exception, InvalidRequestError), (ended.output, ended.exception)
    return ended.exception


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def test_table_from_columns_takes_rows_and_shows_them_merged_or_not(uri: str) -> None:
    columns = [
        part for each in ("id:int64", "name:string", "v:float[2]", "tags:string[]") for part in ("--column", each)
    ]
    assert done("create", uri, *columns, "--key", "id", "--buckets", 2)["regions"] == ["bucket(id, 2)"]
    table = Table.open(uri)
    with table.writer() as writer:
        writer.put(
            pa.table(
                {"id": [1, 2], "name": ["one", None], "v": [[1.0, 2.0]] * 2, "tags": [["x"], []]},
                schema=table.base.state().schema,
            )
        )
        writer.flush()

    for _ in range(2):
        assert done("count", uri) == {"table_uri": uri, "rows": 2}
        assert done("count", uri, "--filter", "id > 1")["rows"] == 1
        assert done("head", uri, "--column", "id", "-n", 1, "--filter", "name IS NULL")["rows"] == [{"id": 2}]
        assert done("lookup", uri, 1)["rows"] == [{"id": 1, "name": "one", "v": [1.0, 2.0], "tags": ["x"]}]
        table.run(MergeRequest())
    assert run("lookup", uri, 1, 7).exit_code == 3
    assert run("head", uri, "--filter", "id > 7").exit_code == 3
    assert [(each["name"], each["type"]) for each in done("schema", uri)["columns"]] == [
        ("id", "int64"),
        ("name", "string"),
        ("v", "fixed_size_list<item: float>[2]"),
        ("tags", "list<item: string>"),
    ]


@pytest.mark.parametrize(
    "command", ["create {} --column id:int64 --key id --dry-run", "count {}", "history {}", "status {}"]
)
def test_every_document_has_the_one_address_of_its_table(
    uri: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Some repeated what had been typed, so that a program could not tell which table it was told of."""
    monkeypatch.chdir(Path(uri).parent)
    if not command.startswith("create"):
        Table.create(uri, pa.schema([("id", pa.int64())]), key="id")

    assert done(*command.format("./t.lance").split())["table_uri"] == uri


def test_table_like_a_parquet_file_or_another_table(uri: str, tmp_path: Path) -> None:
    file, other = tmp_path / "rows.parquet", str(tmp_path / "other.lance")
    pq.write_table(ROWS, file)

    made = done("create", uri, "--like", file, "--key", "id", "--by", "bucket(id, 4)")
    copied = done("create", other, "--like", uri, "--key", "tenant", "--key", "id", "--by", "tenant")

    assert (made["key"], made["regions"]) == (["id"], ["bucket(id, 4)"])
    assert (copied["key"], copied["regions"]) == (["tenant", "id"], ["tenant"])
    assert Table.open(other).base.state().schema.names == ROWS.column_names


def test_table_with_rows_gets_a_key_and_regions_and_is_written(uri: str) -> None:
    """LanceDB refuses a key that may be NULL, which every column of its tables may be."""
    lance.write_dataset(ROWS, uri)

    assert done("enable", uri, "--key", "id", "--by", "unsharded")["key"] == ["id"]

    table = Table.open(uri)
    with table.writer() as writer:
        writer.put(ROWS.slice(1, 1).set_column(1, "tenant", pa.array(["new"])))
        writer.flush()
    table.run(MergeRequest())
    assert lance.dataset(uri).to_table().sort_by("id")["tenant"].to_pylist() == ["a", "new", None]
    assert not table.base.state().schema.field("id").nullable


@pytest.mark.parametrize(
    ("rows", "key", "what"),
    [
        (ROWS, ["tenant"], "rows without a value cannot be identified by this column"),
        (ROWS, ["v"], "this cannot be a column of a primary key"),
        (ROWS, ["nothing"], "this cannot be a column of a primary key"),
        (ROWS, ["id", "id"], "the key names a column twice, or none"),
        (pa.concat_tables([ROWS, ROWS]), ["id"], "several rows have the same key"),
        (ROWS, [], "the table defines no primary key, so MemWAL cannot identify its rows"),
    ],
    ids=["null", "type", "unknown", "twice", "repeated", "none"],
)
def test_key_that_the_rows_contradict_is_refused_and_nothing_is_written(
    uri: str, rows: pa.Table, key: list[str], what: str
) -> None:
    lance.write_dataset(rows, uri)

    error = refusal("enable", uri, *(part for name in key for part in ("--key", name)))

    assert error.what == what
    assert lance.dataset(uri).version == 1


def test_key_of_a_table_cannot_be_changed_and_memwal_not_enabled_twice(uri: str) -> None:
    lance.write_dataset(ROWS, uri)
    done("enable", uri, "--key", "id")

    assert "has a MemWAL index already" in refusal("enable", uri, "--key", "tenant").what
    assert "has a MemWAL index already" in refusal("enable", uri).what


@pytest.mark.req("SPEC-31")
@pytest.mark.parametrize("by", ["tenant", "bucket(tenant, 4)", "multi_bucket(id, tenant, 4)"])
def test_division_that_the_key_does_not_determine_is_refused_and_nothing_is_written(
    uri: str, tmp_path: Path, by: str
) -> None:
    """A warning let it pass: versions of a row lay in several regions, and reads and merges did not know the newest."""
    lance.write_dataset(ROWS, uri)
    enabled, new = str(tmp_path / "enabled.lance"), str(tmp_path / "new.lance")
    done("create", enabled, "--column", "id:int64", "--column", "tenant:string", "--key", "id")
    columns = ["--column", "id:int64", "--column", "tenant:string", "--key", "id"]

    for arguments in (
        ["enable", uri, "--key", "id"],
        ["enable", uri, "--key", "id", "--dry-run"],
        ["create", new, *columns],
        ["create", new, *columns, "--dry-run"],
        ["add-spec", enabled],
    ):
        error = refusal(*arguments, "--by", by)
        assert "columns outside of the primary key decide the region" in error.what
        assert error.facts["columns"] == ["tenant"]
        assert "or divide by buckets of the key" in error.remedy
    assert lance.dataset(uri).version == 1
    assert not Path(new).exists()
    assert done("schema", enabled)["regions"] == ["bucket(id, 1)"]


def test_spec_is_added_under_the_next_id_and_writers_follow_it(uri: str) -> None:
    done("create", uri, "--column", "id:int64", "--column", "day:date32", "--key", "id")
    assert done("add-spec", uri, "--by", "bucket(id, 8)")["change"] == "region spec 2 added"

    assert done("schema", uri)["regions"] == ["bucket(id, 1)", "bucket(id, 8)"]
    table = Table.open(uri)
    with table.writer(spec_id=2) as writer:
        writer.put(pa.table({"id": range(50), "day": pa.nulls(50, pa.date32())}))
        assert len(writer.writers) == 8
    refusal("add-spec", uri)
    refusal("add-spec", uri, "--by", "bucket(nothing, 2)")


@pytest.mark.parametrize(("components", "spec"), [("bucket(id, 8)", 2), (" bucket( id , 1 ) ", 1)])
def test_spec_that_is_there_is_not_added_again(uri: str, components: str, spec: int) -> None:
    done("create", uri, "--column", "id:int64", "--key", "id")
    done("add-spec", uri, "--by", "bucket(id, 8)")

    again = run("add-spec", uri, "--by", components, "--json")

    assert again.exit_code == 3
    assert json.loads(again.stdout)["change"] == f"region spec {spec} divides the table so already"
    assert run("add-spec", uri, "--by", components, "--ok-when-nothing").exit_code == 0
    assert len(done("schema", uri)["regions"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--column", "id:int64", "--like", "x.parquet"],
        ["--column", "id"],
        ["--column", "id:number"],
        ["--column", "id:int64", "--key", "id", "--buckets", "2", "--by", "id"],
        ["--column", "id:int64"],
        ["--column", "id:int64", "--key", "name"],
        ["--column", "v:float", "--key", "v"],
        ["--column", "id:int64", "--column", "v:float[2147483648]", "--key", "id"],
        ["--column", "i\udcff:int64", "--key", "i\udcff"],
        ["--like", "nowhere", "--key", "id"],
        ["--like", __file__, "--key", "id"],
    ],
    ids=lambda each: " ".join(Path(part).name for part in each) or "nothing",
)
def test_table_that_cannot_be_made_leaves_nothing(uri: str, arguments: list[str]) -> None:
    refusal("create", uri, *arguments)

    assert not Path(uri).exists()


def test_keys_of_several_columns_are_lists_and_have_the_types_of_their_columns(uri: str) -> None:
    done("create", uri, "--column", "a:string", "--column", "b:int32", "--key", "b", "--key", "a")
    table = Table.open(uri)
    with table.writer() as writer:
        writer.put(pa.table({"a": ["x"], "b": pa.array([7], pa.int32())}))
        writer.flush()

    assert done("lookup", uri, '[7, "x"]')["rows"] == [{"a": "x", "b": 7}]
    assert len(done("lookup", uri, '[7, "x"]', '[7,"x"]', '["7", "x"]')["rows"]) == 1  # One key, however it is written.
    for wrong in ("7", '["x", 7]', "[7]", "{}"):
        refusal("lookup", uri, wrong)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_binary_key_is_looked_up_as_it_is_shown(uri: str, kind: pa.DataType) -> None:
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    one, two = Table.create(f"{uri}-1", schema, key="k"), Table.create(f"{uri}-2", schema, key=["k", "n"])
    for table in (one, two):
        with table.writer() as writer:
            writer.put(pa.table({"k": pa.array([b"\xff\x00", b"ab", b""], kind), "n": [1, 2, 3]}))
    for shown, number in (("ff00", 1), ("6162", 2), ("", 3)):
        assert done("lookup", one.uri, shown)["rows"] == [{"k": shown, "n": number}]
        assert done("lookup", two.uri, f'["{shown}", {number}]')["rows"] == [{"k": shown, "n": number}]
    for wrong in ("zz", "f"):
        assert "hexadecimal" in refusal("lookup", one.uri, wrong).remedy


def test_key_that_begins_with_a_dash_is_looked_up_as_the_help_says(uri: str) -> None:
    """It was taken for an option, and nothing said what else to write."""
    with Table.create(uri, pa.schema([("id", pa.int64())]), key="id").writer() as writer:
        writer.put(pa.table({"id": [-5]}))

    assert " -- -5" in run("lookup", "--help").stdout
    assert json.loads(run("lookup", uri, "--json", "--", -5).stdout) == {"rows": [{"id": -5}]}


def test_null_in_a_key_is_not_the_text_none(uri: str) -> None:
    table = Table.create(uri, pa.schema([("a", pa.string()), ("b", pa.int64())]), key=["a", "b"])
    with table.writer() as writer:
        writer.put(pa.table({"a": ["None"], "b": [1]}))

    assert done("lookup", uri, '["None", 1]')["rows"] == [{"a": "None", "b": 1}]
    assert "NULL" in refusal("lookup", uri, "[null, 1]").what


TIMES = {
    "nanoseconds": (pa.timestamp("ns"), 1, "1970-01-01 00:00:00.000000001"),
    "late": (pa.timestamp("s"), 568_971_820_800, "20000-01-01 00:00:00"),
    "late days": (pa.date32(), 6_585_322, "20000-01-01"),
    "long": (pa.duration("s"), 2**60, str(2**60)),
    "time of day": (pa.time64("ns"), 1, "00:00:00.000000001"),
    "no such zone": (pa.timestamp("s", "Nowhere/Land"), 1, "1970-01-01 00:00:01Z"),
}


@pytest.mark.parametrize("case", TIMES)
def test_times_that_python_does_not_have_are_shown(uri: str, case: str) -> None:
    kind, number, text = TIMES[case]
    times = pa.array([number], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], times)], ["times"])
    rows = pa.table({"id": [1], "at": times, "nested": nested})
    with Table.create(uri, rows.schema, key="id").writer() as writer:
        writer.put(rows)

    assert done("head", uri)["rows"] == [{"id": 1, "at": text, "nested": {"times": [text]}}]
    assert text.partition(" ")[0] in run("lookup", uri, 1).stdout


@pytest.mark.parametrize("form", [lambda kind: pa.struct([("a", kind)]), pa.list_, lambda kind: pa.list_(kind, 1)])
def test_nesting_that_lance_cannot_read_back_is_refused_before_a_table_is_left(
    uri: str, form: Callable[[pa.DataType], pa.DataType]
) -> None:
    """The table was written, and then neither it nor another one at its address could be had."""
    kind = reduce(lambda inner, _: form(inner), range(62), pa.int64())

    for deep in (form(kind), reduce(lambda inner, _: form(inner), range(20_000), kind)):
        with pytest.raises(InvalidRequestError, match="nested deeper than Lance can read"):
            Table.create(uri, pa.schema([("id", pa.int64()), ("deep", deep)]), key="id")
    assert Table.create(uri, pa.schema([("id", pa.int64()), ("deep", kind)]), key="id").count() == 0


TWICE = pa.struct([("a", pa.int32()), ("a", pa.int32())])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("id", pa.string()),
        ("deep", TWICE),
        ("deep", pa.list_(pa.struct([("deeper", TWICE)]))),
        ("a\0b", pa.string()),
        ("deep", pa.struct([("a\0b", pa.int32())])),
    ],
)
def test_names_that_are_given_twice_or_cut_off_are_refused_before_a_table_is_left(
    uri: str, name: str, kind: pa.DataType
) -> None:
    """Lance's own errors, a KeyError, a ValueError of the first writer, and a column without the end of its name."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field(name, kind)])

    with pytest.raises(InvalidRequestError, match="names of columns") as refused:
        Table.create(uri, schema, key="id")

    assert refused.value.facts["columns"] == [name]
    assert not Path(uri).exists()


def test_struct_of_others_with_a_name_twice_is_refused_by_the_first_writer(uri: str) -> None:
    lance.write_dataset(pa.schema([pa.field("id", pa.int64(), nullable=False), ("deep", TWICE)]).empty_table(), uri)

    with pytest.raises(InvalidRequestError, match="names of columns"):
        Table.open(uri).enable(key=["id"])


def test_values_that_the_terminal_cannot_show_end_no_command(uri: str) -> None:
    rows = pa.table({"id": [1], "name": ["日本"]})
    with Table.create(uri, rows.schema, key="id").writer() as writer:
        writer.put(rows)

    ended = subprocess.run(
        [sys.executable, "-c", "from memwal_core.cli import main; main()", "head", uri],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\u65e5" in ended.stdout


def test_numbers_that_json_does_not_know_are_text(uri: str) -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "x": [float("nan"), float("inf"), -float("inf"), 0.5]})
    with Table.create(uri, rows.schema, key="id").writer() as writer:
        writer.put(rows)

    ended = run("head", uri, "--json")

    found = json.loads(ended.stdout, parse_constant=pytest.fail)["rows"]
    assert [each["x"] for each in found] == ["NaN", "Infinity", "-Infinity", 0.5]


def test_version_is_shown() -> None:
    assert run("--version").stdout.startswith("memwal 0.1.0 (pylance ")


def test_dry_run_says_what_would_be_made_and_refuses_what_would_be_refused(uri: str, tmp_path: Path) -> None:
    columns = ("--column", "id:int64", "--column", "day:date32", "--key", "id")
    planned = done("create", uri, *columns, "--buckets", 2, "--dry-run")
    assert not Path(uri).exists()
    made = done("create", uri, *columns, "--buckets", 2)
    assert {**planned, "outcome": "done", "version": made["version"]} == made
    assert (planned["outcome"], planned["version"]) == ("planned", 0)
    assert "already" in refusal("create", uri, *columns, "--dry-run").what
    left = tmp_path / "left.lance/_versions/18446744073709551614.manifest-2e6521c1-27d4-4208-927e-17e2e2a4a93b"
    left.parent.mkdir(parents=True)
    left.touch()
    assert done("create", left.parents[1], *columns, "--dry-run")["outcome"] == "planned"

    refusal("add-spec", uri, "--by", "bucket(nothing, 2)", "--dry-run")
    planned = done("add-spec", uri, "--by", "bucket(id, 8)", "--dry-run")
    assert (planned["outcome"], planned["change"]) == ("planned", "region spec 2 added")
    assert done("schema", uri)["regions"] == ["bucket(id, 2)"]

    other = str(tmp_path / "other.lance")
    lance.write_dataset(ROWS, other)
    enable = ("enable", other, "--key", "id", "--buckets", 4)
    planned = done(*enable, "--dry-run")
    assert lance.dataset(other).version == planned["version"] == 1
    refusal("enable", other, "--key", "tenant", "--dry-run")
    refusal("enable", other, "--key", "id", "--index", "nothing", "--dry-run")
    made = done(*enable)
    assert {**planned, "outcome": "done", "version": made["version"]} == made
