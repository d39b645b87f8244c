"""Every command that writes has --dry-run, which changes no file and tells machines one document.

Dry runs of `ingest`, which start Spark, are in the tests of ingestion.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memwal_core.cli import app as app_module
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.table import Table
from testkit import commands as shell
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

READS = {
    *("status", "schema", "head", "count", "lookup", "checks", "doctor", "why", "explain", "history", "watch"),
    "storage probe",  # writes nothing of a table, and removes what it wrote
}
ON_SPARK = "ingest"
JOBS = {each.info.name for each in REQUESTS}
REST: Mapping[str, str] = {
    "tables": "{} --register {}/tables.toml",
    "create": "{}/new.lance --column id:int64 --key id",
    "enable": "{}/plain.lance --key id --buckets 2",
    "add-spec": "{}/t --by bucket(id,4)",
    "checkpoint": "{}/t",
    "freeze": "{}/t --reason rest",
    "thaw": "{}/frozen --choice accept",
    "index maintain": "{}/t score",
    "index release": "{}/t name",
    "index replace": "{}/t name score --readers-moved",
    "airflow install": "{}/airflow",
}
OF_JOBS: Mapping[str, str] = {
    "ingest": "{}/t {}/rows.parquet --batch one",
    "backup": "{}/t {}/copy",
    "clone": "{}/t {}/copy",
}
WRITES: Mapping[str, str] = {**{name: OF_JOBS.get(name, "{}/t") for name in JOBS}, **REST}

OF_A_TABLE = {*WRITES, *READS} - {"tables", "create", "watch", "airflow install"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which every command would have something to do; no test changes it."""
    root = tmp_path_factory.mktemp("place")
    made = make_people_table(str(root / "t"), rows=people(1, 2), buckets=1)
    dataset = lance.dataset(made.uri)
    for name in ("name", "score"):
        dataset.create_scalar_index(name, "BTREE", name=name)
    Table.open(made.uri).configuration.maintain_index("name")
    write_generations(made, [1], [3], name="new")
    frozen = make_people_table(str(root / "frozen"), rows=people(1), buckets=1)
    Table.open(frozen.uri).freeze("rest", by="anna")
    lance.write_dataset(pa.table({"id": [1, 2]}), str(root / "plain.lance"))
    pq.write_table(people(4), root / "rows.parquet")
    return root


def contents(root: Path) -> dict[str, str]:
    """Return each path below a directory, with the digest of what is in it; directories, too."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        for path in sorted(root.rglob("*"))
    }


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(app_module, "log_redacted", lambda _level: None)
    monkeypatch.setattr(sys, "argv", ["memwal", *arguments])
    with pytest.raises(SystemExit) as ended:
        app_module.run()
    return int(ended.value.code or 0)


def words(command: str, place: Path, *options: str) -> list[str]:
    return [*command.split(), *WRITES[command].replace("{}", str(place)).split(), *options]


def line_for(command: str, place: str) -> list[str]:
    """Return the words of a command about a table that is not at this place."""
    rest = WRITES.get(command, "{}/t")
    more = {"lookup": ["1"], "why": ["00000000-0000-4000-8000-000000000000"]}.get(command, [])
    return [*command.split(), *rest.replace("{}", place).split(), *more]


def test_every_command_reads_or_is_tried_here() -> None:
    known = {" ".join(path): shell.options_of(command) for path, command in shell.commands().items()}

    assert known.keys() == READS | WRITES.keys()
    assert {name for name, options in known.items() if "--dry-run" in options} == WRITES.keys()
    assert {name for name, options in known.items() if "--json" not in options} == {"watch"}


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(WRITES.keys() - {ON_SPARK}))
def test_dry_run_changes_nothing_and_says_one_document(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(place)

    code = run(monkeypatch, *words(command, place, "--dry-run"))
    for_people = capsys.readouterr().out
    code_of_json = run(monkeypatch, *words(command, place, "--dry-run", "--json"))
    document = json.loads(capsys.readouterr().out)

    assert contents(place) == before
    assert code == code_of_json
    assert code in {0, 3, 5}, for_people
    assert for_people.strip()
    assert isinstance(document, dict)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(OF_A_TABLE - {"storage probe"}))
def test_error_is_one_document_and_makes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(monkeypatch, *line_for(command, str(tmp_path)), "--json")

    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "error"
    assert document["exit_code"] == code != 0
    assert document["error"]["class"] != "UsageError"  # The line is one that somebody could mean.
    assert contents(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(OF_A_TABLE | {"create"}))
def test_store_that_does_not_answer_is_told_as_one_document(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, value in {"ENDPOINT": f"http://127.0.0.1:{port}", "ALLOW_HTTP": "true", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")

    code = run(monkeypatch, *line_for(command, "s3://bucket"), "--json")

    document = json.loads(capsys.readouterr().out)
    assert (code, document["exit_code"], document["error"]["class"]) == (4, 4, "UnavailableError")
    assert "store" in document["error"]["facts"]
    assert document["error"]["next"]
