"""Processes of tests depend on the test that starts them, and on no test before it."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

import pytest

from testkit.processes.start import LONGEST_WAIT_S, start_process

NAME = "OF_THIS_TEST"


def _tell(connection: Connection) -> None:
    connection.send(os.environ.get(NAME))


def _environment_of_a_process() -> str | None:
    process, connection = start_process(_tell)
    try:
        assert connection.poll(LONGEST_WAIT_S)
        return connection.recv()
    finally:
        process.join(LONGEST_WAIT_S)
        connection.close()


def test_process_has_the_environment_of_now_and_not_of_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that all processes come from kept the variables of whichever test had started it."""
    for value in ("first", "second"):
        monkeypatch.setenv(NAME, value)
        assert _environment_of_a_process() == value
    monkeypatch.delenv(NAME)
    assert _environment_of_a_process() is None
