"""A store on which two clients can both create one object is found out; `memwal storage probe` asks it."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from memwal_core.storage.opening import open_store
from memwal_core.storage.probe import probe_conditional_put, race_conditional_puts

CLIENTS = 4


class LooksThenWrites:
    """A store that looks whether an object exists and then writes it: right for one client, wrong for several."""

    def __init__(self, store: Any, everyone_has_looked: Barrier) -> None:
        self._store = store
        self._everyone_has_looked = everyone_has_looked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if any(each.path == path for each in self._store.list_objects("")):
            self._store.put_if_absent(path, data)
        self._everyone_has_looked.wait()
        self._store.put(path, data)


@pytest.mark.parametrize("address", ["memory://", "directory"])
def test_atomic_store_has_one_winner_and_keeps_nothing(address: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path) if address == "directory" else address)

    race_conditional_puts([store] * CLIENTS, "probe", 20)

    assert list(store.list_objects("")) == []


def test_store_that_looks_before_it_writes_passes_alone_and_fails_the_race() -> None:
    store = open_store("memory://")
    probe_conditional_put(LooksThenWrites(store, Barrier(1)), "probe")  # Nothing to see without a race.
    clients = [LooksThenWrites(store, barrier) for barrier in [Barrier(CLIENTS)] for _ in range(CLIENTS)]

    with pytest.raises(InvalidRequestError) as raised:
        race_conditional_puts(clients, "probe", 1)

    assert raised.value.facts["condition"] == "If-None-Match, raced: 4 of 4 clients won"
    assert list(store.list_objects("")) == []


def test_command_says_that_one_won_and_leaves_nothing(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["storage", "probe", str(tmp_path), "--clients", "3", "--rounds", "2"])
    as_json = CliRunner().invoke(app, ["storage", "probe", str(tmp_path), "--rounds", "1", "--json"])

    assert (told.exit_code, as_json.exit_code) == (0, 0), (told.output, as_json.output)
    assert "of 3 clients that raced 2 times, one won each time" in told.output
    assert json.loads(as_json.output)["ok"] is True
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
