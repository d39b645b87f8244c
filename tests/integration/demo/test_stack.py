"""Stopping a stack: whatever its servers started is ended, in whatever session it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from demo.commands import app
from demo.directory import DemoDirectory, alone_at, claim_directory
from demo.stack.marked import end_processes, marked, marked_processes
from demo.stack.stack import STATE, Stopped, running_stack, served_under, stop_stack
from memwal_core.clock import SystemClock
from memwal_core.errors import InvalidRequestError

CLOCK = SystemClock()
# Airflow's processes give themselves titles, which by default overwrite the environment that others see.
SLEEP = """
import os, time
from setproctitle import setproctitle
setproctitle("a long title " * 500)
os.write(1, b"up\\n")
time.sleep(600)
"""
SERVER = f"""
import subprocess, sys
# A driver as a task starts it: with a session of its own, through a program that ends at once.
inner = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)"
subprocess.run([sys.executable, "-c", inner, {SLEEP!r}], start_new_session=True, check=True)
{SLEEP}
"""
NAMES = ("api-server", "scheduler", "dag-processor", "triggerer")


@dataclass
class Started:
    """Processes that stand for the servers of a stack, the second of which has started a driver."""

    directory: DemoDirectory
    servers: list[subprocess.Popen[str]]
    driver: psutil.Process


def lives(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended may stay listed until somebody takes note of it."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _start(mark: str, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=marked(os.environ, mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _await_up(server: subprocess.Popen[str], processes: int) -> None:
    assert server.stdout is not None
    assert [server.stdout.readline() for _ in range(processes)] == ["up\n"] * processes


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    directory = claim_directory(tmp_path / "stack")
    mark = str(directory.root.resolve())
    servers = [_start(mark, SERVER if name == "scheduler" else SLEEP) for name in NAMES]
    try:
        for name, server in zip(NAMES, servers, strict=True):
            _await_up(server, 2 if name == "scheduler" else 1)
        born = {each.pid: psutil.Process(each.pid).create_time() for each in servers}
        state = {"address": "http://127.0.0.1:1", "password": "word", "servers": born}
        (directory.root / STATE).write_text(json.dumps(state))
        [driver] = [each for each in marked_processes(mark) if each.pid not in born]
        assert os.getsid(driver.pid) not in born  # no signal to the group of a server reaches it
        yield Started(directory, servers, driver)
    finally:
        end_processes(mark, CLOCK)
        for each in servers:
            each.wait(60)
            assert each.stdout is not None
            each.stdout.close()


def test_driver_in_a_session_of_its_own_ends_with_its_stack(started: Started) -> None:
    assert stop_stack(started.directory, CLOCK) == Stopped("http://127.0.0.1:1", servers=4, others=1)

    assert not lives(started.driver)
    assert marked_processes(str(started.directory.root.resolve())) == []


def test_stopping_again_finds_nothing(started: Started) -> None:
    stop_stack(started.directory, CLOCK)

    assert stop_stack(started.directory, CLOCK) is None


def test_driver_that_killed_servers_left_behind_is_ended(started: Started) -> None:
    for server in started.servers:
        server.kill()
        server.wait(60)

    assert stop_stack(started.directory, CLOCK) == Stopped("http://127.0.0.1:1", servers=0, others=1)
    assert not lives(started.driver)


def test_processes_are_found_without_the_file_that_remembers_the_servers(started: Started) -> None:
    (started.directory.root / STATE).unlink()

    assert stop_stack(started.directory, CLOCK) == Stopped("", servers=0, others=5)


def test_other_stacks_and_the_caller_are_left_alone(started: Started, tmp_path: Path) -> None:
    assert stop_stack(claim_directory(tmp_path / "other"), CLOCK) is None
    assert lives(started.driver)

    # As from a shell that a task of the stack opened.
    environment = marked(os.environ, str(started.directory.root.resolve()))
    code = (
        "import os; from memwal_core.clock import SystemClock; from demo.stack import marked\n"
        "print(marked.end_processes(os.environ[marked.MARK], SystemClock()))"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "5\n"
    assert ended.returncode == 0


def test_down_says_what_it_ended_and_that_nothing_is_left(started: Started) -> None:
    arguments = ["down", "--directory", str(started.directory.root)]

    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))

    assert (first.exit_code, first.stdout) == (0, "stopped http://127.0.0.1:1 and 1 processes of its tasks\n")
    assert (second.exit_code, second.stdout) == (3, "no stack runs here\n")


def test_down_after_all_servers_were_killed_ends_what_they_left(started: Started) -> None:
    for server in started.servers:
        server.kill()
        server.wait(60)

    ended = CliRunner().invoke(app, ["down", "--directory", str(started.directory.root)])

    assert ended.exit_code == 0
    assert "the servers had ended already; ended 1 processes that they left behind" in ended.stdout


def test_up_on_a_running_stack_changes_nothing_and_shows_the_login(started: Started) -> None:
    present = sorted(path.name for path in started.directory.root.iterdir())

    shown = CliRunner().invoke(app, ["up", "--directory", str(started.directory.root)])

    assert shown.exit_code == 0
    assert "the stack runs already; nothing was changed" in shown.stdout
    assert "http://127.0.0.1:1/plugin/memwal" in shown.stdout
    assert "admin / word" in shown.stdout
    assert sorted(path.name for path in started.directory.root.iterdir()) == present
    assert all(server.poll() is None for server in started.servers)


def test_up_on_a_part_of_a_stack_is_refused_and_names_what_ended(started: Started) -> None:
    started.servers[1].kill()
    started.servers[1].wait(60)

    with pytest.raises(InvalidRequestError, match="scheduler") as refused:
        running_stack(started.directory)

    assert "make down" in str(refused.value)


@pytest.mark.parametrize("command", ["up", "down"])
def test_start_or_stop_while_another_is_under_way_is_refused(tmp_path: Path, command: str) -> None:
    with alone_at(tmp_path / "stack"):
        refused = CliRunner().invoke(app, [command, "--directory", str(tmp_path / "stack")])

    assert isinstance(refused.exception, InvalidRequestError)
    assert "right now" in str(refused.exception)
    assert not (tmp_path / "stack").exists()


@pytest.mark.parametrize("path", ["airflow", "/", "/a//b", "/a?b", "/a/"])
def test_path_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="plain path"):
        served_under({"AIRFLOW__API__BASE_URL": "http://127.0.0.1:1"}, path)
