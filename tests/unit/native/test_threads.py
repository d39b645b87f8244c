"""Numbers of threads with which Lance waits for ever, or panics, are refused before it is called."""

from __future__ import annotations

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.native.threads import require_threads
from memwal_core.storage import open_store


@pytest.mark.parametrize("value", ["0", "1", "+1", "01", "", " 2", "2 ", "-1", "2.0", "two", "٢"])
def test_threads_that_lance_cannot_work_with_are_named(value):
    with pytest.raises(InvalidRequestError, match="LANCE_IO_THREADS is not a number of threads") as raised:
        require_threads({"LANCE_IO_THREADS": value})

    assert (raised.value.facts["variable"], raised.value.facts["value"]) == ("LANCE_IO_THREADS", value)
    assert raised.value.exit_code == 2
    with pytest.raises(InvalidRequestError, match="LANCE_CPU_THREADS"):
        require_threads({"LANCE_CPU_THREADS": value.replace("1", "0").replace("2", "x")})


def test_threads_that_lance_can_work_with_are_left_alone():
    require_threads({})
    require_threads({"LANCE_IO_THREADS": "+2", "LANCE_CPU_THREADS": "1"})


def test_every_table_is_refused_while_lance_would_hang(monkeypatch, tmp_path):
    monkeypatch.setenv("LANCE_IO_THREADS", "1")

    with pytest.raises(InvalidRequestError, match="LANCE_IO_THREADS"):
        open_store(str(tmp_path))
