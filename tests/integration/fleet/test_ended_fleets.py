"""A round over a registry, and the service, that somebody ends while a job of a table is at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome
from memwal_core.table import Table
from testkit.tables.people import make_people_table, people
from tests.conftest import ROOT

pytestmark = pytest.mark.slow  # Each table is worked on in a process of its own.

SLOW_MERGE = """
import pathlib, sys, time
if "memwal_core.fleet.table_process" in sys.orig_argv:
    from memwal_core.jobs.merge.job import MergeJob

    def slow(self, context, request):
        pathlib.Path({!r}).touch()
        time.sleep(600)

    MergeJob.run = slow
"""
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from memwal_core.cli import main; main()"
)


@pytest.mark.parametrize(
    ("number", "options", "code"),
    [
        (signal.SIGTERM, [], 143),
        (signal.SIGINT, [], 130),
        (signal.SIGTERM, ["--every", "60s", "--grace", "1s"], 0),
    ],
    ids=["round by SIGTERM", "round by Ctrl-C", "service"],
)
def test_job_of_a_fleet_that_is_ended_gives_its_lease_back(
    tmp_path: Path, number: signal.Signals, options: list[str], code: int
) -> None:
    """Its process was killed, and for five minutes the lease kept the next runs from working."""
    table = make_people_table(str(tmp_path / "people"), rows=people(1), buckets=1)
    registry, begun, site = tmp_path / "tables.toml", tmp_path / "begun", tmp_path / "site"
    registry.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n")
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLOW_MERGE.format(str(begun)))
    command = [sys.executable, "-c", MAIN, "maintain", "--registry", str(registry), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            while not begun.exists() and process.poll() is None:
                time.sleep(0.1)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()

    assert (process.returncode, "Traceback" in said) == (code, False)
    opened = Table.open(table.uri).opened
    ends = [run.outcome for job in ("merge", "maintain") for run in opened.ledger.runs(job)]
    assert ends == [RunOutcome.INTERRUPTED, RunOutcome.INTERRUPTED]
    opened.leases.acquire(JobKey("merge"), "the next run").release()
