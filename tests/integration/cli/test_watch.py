"""`memwal watch` as people run it: once, and as a process that Prometheus asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

ROOT = Path(__file__).resolve().parents[3]
MAIN = "from memwal_core.cli import main; main()"


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """Two tables, one of them with a damaged manifest, and an address where nothing is."""
    for name in ("sound", "hurt"):
        made = make_people_table(str(tmp_path / name), rows=people(1, 2), buckets=1)
        write_generations(made, [1, 3], name="new")
    Vandal(made).garble_manifest(Table.open(made.uri).opened.manifests.region_ids()[0])
    file = tmp_path / "tables.toml"
    file.write_text(
        "".join(f'[[tables]]\nname = "{name}"\nuri = "{tmp_path / name}"\n' for name in ("sound", "hurt", "gone"))
    )
    return file


def test_once_prints_the_metrics_of_every_table_and_ends_with_the_worst(registry):
    result = CliRunner().invoke(app, ["watch", "--registry", str(registry), "--once"])

    assert result.exit_code == 7
    lines = result.stdout.splitlines()
    assert 'memwal_table_level{memwal_table="sound"} 0' in lines
    assert 'memwal_table_level{memwal_table="hurt"} 2' in lines
    assert any(
        line.startswith('memwal_finding{memwal_table="hurt",finding="manifest-unreadable",level="page"')
        for line in lines
    )
    assert 'memwal_table_examined{memwal_table="gone"} 0' in lines


@pytest.mark.timeout(60)
def test_once_reads_a_registry_that_comes_through_a_pipe_one_time(registry):
    """The second time it was empty: no table, and the exit code of a fleet that is well."""
    text, pipe = registry.read_text(), registry.parent / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        pool.submit(pipe.write_text, text)
        result = CliRunner().invoke(app, ["watch", "--registry", str(pipe), "--once"])

    assert result.exit_code == 7
    assert "memwal_watch_tables 3" in result.stdout


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", [["watch"], ["maintain", "--every", "60s"]])
def test_service_refuses_a_registry_that_it_can_read_only_once(tmp_path, command):
    os.mkfifo(tmp_path / "pipe")
    result = CliRunner().invoke(app, [*command, "--registry", str(tmp_path / "pipe")])

    assert isinstance(result.exception, InvalidRequestError)
    assert "read only once" in str(result.exception)


@pytest.mark.parametrize("option", ["--deadline", "--deep-every"])
def test_times_are_taken_with_their_units(tmp_path, option):
    """Before, `--deadline 45s` was refused, although `--every 60s` is not."""
    (tmp_path / "none.toml").write_text("")

    for text, code in (("45s", 0), ("45", 0), ("1h", 0), ("soon", 2), ("0", 0 if option == "--deep-every" else 2)):
        result = CliRunner().invoke(app, ["watch", "--registry", str(tmp_path / "none.toml"), "--once", option, text])
        assert result.exit_code == code, text


def test_registry_that_cannot_be_read_is_refused_at_the_start(tmp_path):
    result = CliRunner().invoke(app, ["watch", "--registry", str(tmp_path / "none.toml"), "--once"])

    assert getattr(result.exception, "exit_code", None) == 2


@pytest.mark.slow
def test_process_answers_prometheus_until_it_is_told_to_end(registry):
    command = [sys.executable, "-c", MAIN, "watch", "--registry", str(registry), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().partition(" at ")[2].partition(",")[0]
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"# TYPE memwal_table_level gauge" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(address.replace("/metrics", "/"), timeout=60)
        refused.value.close()
        assert health_of(address)["registry"] == "readable"
        assert set(health_of(address)) == {
            "healthy", "seconds_since_the_last_round", "registry", "not_examined", "not_deeply_examined"
        }  # fmt: skip
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 0


def health_of(address: str) -> dict[str, object]:
    """Return what `/healthz` says, whether the first round has ended or not."""
    try:
        with urllib.request.urlopen(address.replace("/metrics", "/healthz"), timeout=60) as answer:
            found: dict[str, object] = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            found = json.loads(error.read())
    return found
