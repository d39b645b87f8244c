"""A command whose output nobody reads, or that cannot be written, or that is interrupted, ends without a traceback."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import memwal_core
from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome
from memwal_core.jobs.view import Grid

MEMWAL = "from memwal_core.cli import main; main()"
INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "memwal_core.cli.app":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


def run(*arguments: str, stdout: int, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{before}{MEMWAL}", *arguments],
        check=False, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri: Path = tmp_path_factory.mktemp("output") / "t"
    memwal_core.create(str(uri), pa.schema([("id", pa.int64())]), key="id")
    return str(uri)


@pytest.mark.parametrize("arguments", [("count",), ("count", "--json"), ("schema",)])
def test_output_on_a_full_disk_is_told_on_stderr(uri: str, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = run(*arguments, uri, stdout=full.fileno())
    assert (ended.returncode, "Traceback" in ended.stderr) == (4, False)
    assert "what the command prints cannot be written" in ended.stderr


def test_error_that_cannot_be_printed_keeps_its_exit_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = run("count", str(tmp_path / "none"), "--json", stdout=full.fileno())
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)


@pytest.mark.parametrize("arguments", [("count",), ("count", "--json"), ("schema",)])
def test_output_that_nobody_reads_ends_the_command_quietly(uri: str, arguments: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ended = run(*arguments, uri, stdout=write_end)
    finally:
        os.close(write_end)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_interruption_while_a_command_starts_leaves_no_traceback(uri: str) -> None:
    # Whoever runs the tests may ignore the signal, as a shell does for what it starts in the background.
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{INTERRUPTED}"
    ended = run("count", uri, stdout=subprocess.DEVNULL, before=heeding)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_interruption_that_a_shell_ignores_is_ignored(uri: str) -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED}"
    ended = run("count", uri, "--json", stdout=subprocess.PIPE, before=ignoring)
    assert (ended.returncode, json.loads(ended.stdout)["rows"]) == (0, 0)


ENDED_AT_WORK = """
import os, signal, time
from memwal_core.jobs.snapshot.job import SnapshotJob

def ended(self, context, request):
    os.kill(os.getpid(), signal.{})
    time.sleep(60)

SnapshotJob.run = ended
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_job_that_a_signal_ends_gives_its_lease_back(uri: str, number: signal.Signals, code: int) -> None:
    """After SIGTERM, as `timeout`, systemd and Kubernetes send it, a lease stayed for five minutes."""
    ended = run("snapshot", uri, "--json", stdout=subprocess.PIPE, before=ENDED_AT_WORK.format(number.name))

    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)
    document = json.loads(ended.stdout)
    assert (document["exit_code"], document["error"]["what"]) == (code, "the command was interrupted")
    opened = memwal_core.open(uri).opened
    assert opened.ledger.runs("snapshot")[-1].outcome is RunOutcome.INTERRUPTED
    opened.leases.acquire(JobKey("snapshot"), "the next run").release()


def test_termination_that_a_shell_ignores_is_ignored(uri: str) -> None:
    ignoring = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    terminating = INTERRUPTED.replace("SIGINT", "SIGTERM")
    ended = run("count", uri, "--json", stdout=subprocess.PIPE, before=ignoring + terminating)
    assert (ended.returncode, json.loads(ended.stdout)["rows"]) == (0, 0)


def test_first_rows_are_shown_before_the_last_are_laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 rows, nothing was shown for 22 s."""
    table = memwal_core.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("a", pa.string())]), key="id")
    with table.writer() as writer:
        writer.put(pa.table({"id": range(2500), "a": ["x"] * 2500}))
    grids: list[Grid] = []
    monkeypatch.setattr("memwal_core.cli.rows.show_grid", lambda grid, _: grids.append(grid))
    ended = CliRunner().invoke(app, ["head", str(tmp_path / "t"), "-n", "2300"])
    assert ended.exit_code == 0
    assert [len(grid.rows) for grid in grids] == [1000, 1000, 300]
    assert len({row[0] for grid in grids for row in grid.rows}) == 2300


SLOW = """
import time
import memwal_core.cli.show as show
from memwal_core.jobs.verify.job import VerifyJob

show.LOG_EVERY_S = 0.2
verify = VerifyJob.run

def slowly(self, context, request):
    context.progress("keys", 3, 9)
    time.sleep(1.5)
    return verify(self, context, request)

VerifyJob.run = slowly
"""


def test_long_job_tells_in_a_log_that_it_works_and_with_json_nothing(uri: str) -> None:
    """A verification of hours was as silent as one that hangs."""
    shown, silent, quick = (
        run("verify", uri, *more, stdout=subprocess.PIPE, before=before)
        for more, before in (((), SLOW), (("--json",), SLOW), ((), ""))
    )
    assert "verify: works for 1 s, keys 3 of 9\n" in shown.stderr
    assert "works" not in shown.stdout
    assert (json.loads(silent.stdout)["job"], silent.stderr) == ("verify", "")
    assert quick.stderr == ""


def test_job_without_stages_shows_in_a_terminal_that_it_works(uri: str) -> None:
    reader, writer = pty.openpty()
    before = SLOW.replace("context.progress", "str.format")
    try:
        command = [sys.executable, "-c", f"{before}{MEMWAL}", "verify", uri]
        ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=writer, timeout=120)
        shown = os.read(reader, 1 << 16).decode()
    finally:
        os.close(writer)
        os.close(reader)
    assert ended.returncode in {0, 3}
    assert "verify" in shown
    assert b"works for" not in ended.stdout
