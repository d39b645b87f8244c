"""Wrong input: every error says what is wrong, with which value, and what to do next."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import MemwalError
from testkit import commands as shell
from testkit.tables.people import make_people_table, people


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    make_people_table("people.lance", rows=people(1, 2))
    lance.write_dataset(pa.table({"id": [1]}), "plain.lance")
    pq.write_table(people(4), "rows.parquet")
    Path("empty").mkdir()
    Path("file").touch()
    return "people.lance"


@pytest.mark.parametrize(
    ("command", "what", "facts", "remedy"),
    [
        ("merge nosuch.lance", "does not exist", {"operation": "open the table"}, "memwal tables DIRECTORY"),
        ("merge s3:/bucket/x.lance", "two slashes", {"uri": "s3:/bucket/x.lance"}, "address"),
        ("merge s3://", "bucket is missing", {"uri": "s3:"}, "address"),
        ("merge ~/people.lance", "only a shell", {"uri": "~/people.lance"}, "address"),
        ("status plain.lance", "no MemWAL index", {"table": "{}/plain.lance"}, "memwal enable"),
        ("why people.lance zz", "no region's id begins", {"text": "zz"}, "memwal status"),
        ("tables file", "a file, not a directory", {"path": "{}/file"}, "path"),
        ("ingest people.lance empty", "format of the source", {"source": "empty"}, "--format"),
        (
            "ingest people.lance rows.parquet --delete-column name",
            "is a column of the table",
            {"delete_column": "name"},
            "only the batch",
        ),
        ("create new.lance --column id:int64 --like plain.lance --key id", "in one way", {}, "either --column"),
        ("create new.lance --column id:int64 --key id --buckets 2 --by id", "in one way", {}, "not both"),
        ("ingest people.lance nosuch.parquet", "no file", {"source": "nosuch.parquet"}, "path"),
        ("ingest people.lance nosuch*.parquet", "no file", {"source": "nosuch*.parquet"}, "path"),
        ("ingest people.lance s3://b/x.parquet", "batch id", {"source": "s3://b/x.parquet"}, "--batch"),
        ("explain people.lance --filter 'nosuch > 1'", "refused", {"operation": "read the filter"}, "correct"),
        ("explain people.lance --filter 'id >'", "refused", {"operation": "read the filter"}, "correct"),
        ("enable plain.lance", "no primary key", {"columns": ["id"]}, "--key"),
        ("create new.lance --column id:int64", "names no column", {"columns": ["id"]}, "--key"),
        ("create file/new.lance --column id:int64 --key id", "is a file", {"store": "{}/file/new.lance"}, "path"),
        ("create /proc/new.lance --column id:int64 --key id", "refused", {"table": "/proc/new.lance"}, "path"),
        ("backup people.lance /proc/nothing", "refused", {"store": "/proc/nothing"}, "permissions"),
        ("backup people.lance file", "is a file", {"store": "{}/file"}, "choose another"),
        ("backup people.lance file/below", "is a file", {"store": "{}/file/below"}, "choose another"),
        ("backup people.lance people.lance", "inside of each other", {"target": "people.lance"}, "another target"),
        ("backup people.lance people.lance/copy", "inside of each other", {}, "another target"),
        ("backup people.lance .", "inside of each other", {"target": "."}, "another target"),
        ("backup people.lance plain.lance", "must be empty", {"target": "{}/plain.lance"}, "empty this one"),
        ("backup people.lance new.lance --target-option a=b", "no storage options", {"options": ["a"]}, "leave"),
        ("clone people.lance /proc/nothing", "refused", {"store": "/proc/nothing"}, "permissions"),
        ("history people.lance --job nosuch", "no such job", {"job": "nosuch"}, "known"),
        ("catchup people.lance --index nosuch", "no such index", {"unknown": ["nosuch"], "known": []}, "name"),
        ("airflow install s3://b/x", "object store cannot be used", {"path": "s3://b/x"}, "path of this machine"),
        ("maintain --registry s3://b/x", "object store cannot be used", {"path": "s3://b/x"}, "path of this machine"),
        ("watch --registry s3://b/x", "object store cannot be used", {"path": "s3://b/x"}, "path of this machine"),
        ("maintain people.lance --suite rows.json", "run by checks", {"suites": ["rows.json"]}, "--checks mandatory"),
        ("tables . --register s3://b/x", "object store cannot be used", {"path": "s3://b/x"}, "path of this machine"),
    ],
)
def test_wrong_input_is_named_with_its_value_and_a_way_on(
    table: str, command: str, what: str, facts: dict[str, object], remedy: str
) -> None:
    ended = CliRunner().invoke(app, command.replace("people.lance", table))

    error = ended.exception
    assert isinstance(error, MemwalError), ended.output
    assert (error.exit_code, ended.output) == (2, "")  # What is told of it follows.
    assert what in error.what
    assert remedy in error.remedy
    known = {name: fact.format(Path.cwd()) if isinstance(fact, str) else fact for name, fact in facts.items()}
    assert error.facts == error.facts | known


WORDS = {
    "lookup": ["1"],
    "ingest": ["rows.parquet"],
    "backup": ["copy.lance"],
    "clone": ["copy.lance"],
    "freeze": ["--reason", "x"],
    "why": ["00000000-0000-0000-0000-000000000000"],
    "create": ["--column", "id:int64", "--key", "id"],
    "add-spec": ["--by", "bucket(id, 2)"],
    "index maintain": ["old"],
    "index release": ["old"],
    "index replace": ["old", "new"],
}
"""What a command needs besides its table."""
WITH_OPTIONS = [path for path, command in shell.commands().items() if "--storage-option" in shell.options_of(command)]


@pytest.mark.parametrize("path", WITH_OPTIONS, ids=" ".join)
def test_storage_option_of_a_local_path_is_refused_by_every_command(table: str, path: shell.Path) -> None:
    """It was ignored: neither a misspelt option nor a forgotten s3:// was noticed."""
    arguments = [*path, table, *WORDS.get(" ".join(path), []), "--storage-option", "aws_regio=secret"]

    error = CliRunner().invoke(app, arguments).exception

    assert isinstance(error, MemwalError)
    assert error.what == "a local path takes no storage options"
    assert (error.exit_code, error.facts["options"]) == (2, ["aws_regio"])
    assert "secret" not in str(error)


def test_option_with_two_values_is_refused_for_the_last_one_won_silently(table: str) -> None:
    twice = ["--storage-option", "aws_region=first", "--storage-option", "aws_region=second"]

    error = CliRunner().invoke(app, ["status", table, *twice]).exception

    assert isinstance(error, MemwalError)
    assert (error.what, error.exit_code, error.facts) == ("an option is given twice", 2, {"option": "aws_region"})


@pytest.mark.parametrize("command", ["lookup people.lance 99", "head people.lance --filter 'id > 99'"])
def test_command_that_finds_no_row_says_so(table: str, command: str) -> None:
    ended = CliRunner().invoke(app, command.replace("people.lance", table))

    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "no such row" in ended.stderr


def test_lookup_that_finds_some_rows_counts_the_keys_without_one(table: str) -> None:
    ended = CliRunner().invoke(app, ["lookup", table, "1", "99", "98"])

    assert ended.exit_code == 3
    assert "2 of 3 keys have no row" in ended.stderr


@pytest.mark.parametrize(("options", "said"), [("", "no job has run yet"), (" --job merge", "merge has not run yet")])
def test_history_without_runs_says_so(table: str, options: str, said: str) -> None:
    shown = CliRunner().invoke(app, f"history {table}{options}")

    assert (shown.exit_code, shown.stdout) == (0, f"{said}\n")


def test_status_of_a_table_without_a_region_says_that_nothing_was_written(table: str) -> None:
    ended = CliRunner().invoke(app, ["status", table])

    assert ended.exit_code == 0
    assert "no region yet: nothing was written" in ended.stdout
    assert "┃" not in ended.stdout


def test_help_lists_commands_by_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["--help"]).output
    panels = [shown.index(f"─ {name} ─") for name in ("Tables and their rows", "Jobs", "Decisions", "Setup")]

    assert "─ Commands ─" not in shown
    assert panels[0] < shown.index("│ create ") < panels[1] < shown.index("│ merge ") < panels[2]
