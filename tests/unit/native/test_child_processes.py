"""Processes that do for another one what may end them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from memwal_core.clock import SystemClock
from memwal_core.errors import UnavailableError
from memwal_core.fleet import process_pool
from memwal_core.fleet.isolation import Deadline
from memwal_core.fleet.process_pool import TableProcesses
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.native.child_processes import ChildProcesses, ProcessEndedError, ProcessSilentError

pytestmark = pytest.mark.req("T6")

_CHILD = "tests.unit.native.answering_child"

_INTERRUPTED = f"""
import signal
from memwal_core.native.child_processes import ChildProcesses
signal.signal(signal.SIGINT, lambda *_: None)
processes = ChildProcesses("{_CHILD}")
for seconds in (0, 1):
    print(processes.ask({{"sleep_s": seconds}})["pid"], flush=True)
"""


def test_a_process_serves_one_question_after_another_and_is_replaced_when_it_died() -> None:
    processes = ChildProcesses(_CHILD, max_processes=1)
    first = processes.ask({})
    assert processes.ask({}) == first

    with pytest.raises(ProcessEndedError, match="SIGABRT") as caught:
        processes.ask({"signal": signal.SIGABRT})

    assert caught.value.crashed
    assert processes.ask({"last": True})["pid"] != first["pid"]
    assert processes.ask({})["pid"] != first["pid"]  # It had ended by itself, which is no answer to anything.


@pytest.mark.parametrize("retry_if_killed", [True, False])
def test_a_process_that_others_end_is_no_fault_of_the_question(retry_if_killed: bool) -> None:
    processes = ChildProcesses(_CHILD, retry_if_killed=retry_if_killed)

    with pytest.raises(ProcessEndedError, match="SIGKILL") as caught:
        processes.ask({"signal": signal.SIGKILL})

    assert not caught.value.crashed


def test_an_interrupt_at_the_terminal_is_for_the_process_that_asks_to_decide_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as asking:
        assert asking.stdout is not None
        first = asking.stdout.readline()
        os.killpg(asking.pid, signal.SIGINT)  # As a terminal does: to its whole foreground.
        said, _ = asking.communicate(timeout=60)

    assert (asking.returncode, said) == (0, first)


def test_a_silent_process_is_ended() -> None:
    processes = ChildProcesses(_CHILD, timeout_s=0.2)

    with pytest.raises(ProcessSilentError, match=r"0\.2 s"):
        processes.ask({"sleep_s": 600})


def test_a_process_that_stops_within_its_answer_is_ended() -> None:
    with pytest.raises(ProcessSilentError):
        ChildProcesses(_CHILD, timeout_s=0.5).ask({"half": True})


def test_a_process_that_does_not_read_its_question_is_ended() -> None:
    deaf = ChildProcesses(_CHILD, timeout_s=0.5, environment={**os.environ, "DEAF": "1"})

    with pytest.raises(ProcessSilentError):
        deaf.ask({"long": "x" * 300_000})


def test_a_long_question_is_asked_and_a_long_answer_read() -> None:
    answer = ChildProcesses(_CHILD, timeout_s=60).ask({"echo": "x" * 300_000})

    assert answer["echo"] == "x" * 300_000


def test_the_process_of_a_table_that_hangs_is_killed_after_twice_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "_CHILD", _CHILD)
    clock, before = SystemClock(), set(psutil.Process().children())
    began = clock.monotonic()
    processes = TableProcesses(1, 1.0)

    with pytest.raises(UnavailableError, match="did not answer"):
        processes.cycle("silent", "/table", {}, MaintainRequest(), Deadline(clock, began + 0.2, 0.2))

    assert clock.monotonic() - began >= 0.4
    assert set(psutil.Process().children()) == before


def test_airflows_secrets_are_not_handed_to_processes_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "not for others")
    monkeypatch.setenv("_AIRFLOW_WWW_USER_PASSWORD", "neither")
    monkeypatch.setenv("AWS_PROFILE", "needed")

    handed = TableProcesses(1, 1.0).environment

    assert "AWS_PROFILE" in handed
    assert not [name for name in handed if "AIRFLOW" in name]
