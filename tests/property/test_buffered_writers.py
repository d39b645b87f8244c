"""Buffered writers of several regions: what a flush or a close promised is durable, whatever failed before it."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, MemwalError, UnavailableError
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.writer import TableWriter
from testkit.faults.faulty_store import FaultyStore
from testkit.inline_executor import InlineExecutor
from testkit.rng import seeded_rng
from testkit.tables.people import make_people_table, people, reopened

SETTINGS = Settings(
    storage=StorageSettings(fsync=False, retry_wait_s=0, max_attempts=1, concurrency=1),
    writer=WriterSettings(durable_write=False, background_flush=False, max_memtable_rows=20),
)
KEYS = 12
ACTIONS = ("put", "put", "put", "flush", "close", "close", "rival", "look")
NO_ANSWER = (CommitUnknownError, ConflictError, UnavailableError)


class _History:
    """One writer of all regions behind a faulty store, beside rivals that take a region each."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._rng = seeded_rng(seed)
        self._table = make_people_table(str(directory / "t"), buckets=3, settings=SETTINGS)
        self._store = FaultyStore(self._table.store)
        self._writer: TableWriter | None = None
        self._tried: dict[int, list[str]] = {key: [] for key in range(KEYS)}
        self._accepted: dict[int, int] = {}
        self._promised: dict[int, int] = {}
        """Of each key the last tried value that a put took, and that a flush or a close has promised since."""

    def run(self, actions: list[str], failing: float) -> None:
        self._store.fail_randomly(self._rng, failing, "put_parts_if_absent")
        for action in actions:
            try:
                self._take(action)
            except FencedError:
                self._writer, self._accepted = None, {}  # It was told; what nothing had promised may be gone.
            except NO_ANSWER:
                pass
        self._store.heal()

    def _take(self, action: str) -> None:
        if action == "rival":
            self._let_a_rival_take_a_region()
            return
        if action == "look":
            self._look_as_a_thread_does()
            return
        if self._writer is None:
            self._writer = TableWriter.open(
                reopened(self._table, self._store, SETTINGS), takeover="fence", executor=InlineExecutor()
            )
        if action == "put":
            keys = self._rng.sample(range(KEYS), 4)
            name = f"v{sum(map(len, self._tried.values()))}"
            for key in keys:
                self._tried[key].append(name)
            self._writer.put(people(*keys, name=name))
            self._accepted |= {key: len(self._tried[key]) - 1 for key in keys}
            return
        if action == "flush":
            self._writer.flush()
        else:
            self._close()
        self._promised |= self._accepted

    def _close(self) -> None:
        writer = self._writer
        assert writer is not None
        while not writer.is_closed:
            try:
                writer.close()
            except NO_ANSWER:
                self._store.heal()
        self._writer = None

    def _let_a_rival_take_a_region(self) -> None:
        values = list(self._writer.writers) if self._writer is not None else []
        if not values:
            return
        taken = self._rng.choice(values)
        with TableWriter.open(self._table, takeover="fence", accept=lambda value: value == taken) as w:
            w.put(people(*range(100, 112)))

    def _look_as_a_thread_does(self) -> None:
        """Find out which regions are lost, and tell nobody."""
        for writer in self._writer.writers.values() if self._writer is not None else ():
            with suppress(MemwalError):
                writer._state.ownership._verify()

    def mismatches(self) -> list[str]:
        """Return the keys whose newest value is older than what was promised."""
        found = MergedReader(self._table, consistency=Consistency.DURABLE).to_arrow()
        newest = dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
        return [
            f"key {key} is {newest.get(key)} and none of {self._tried[key][promised:]}"
            for key, promised in self._promised.items()
            if newest.get(key) not in self._tried[key][promised:]
        ]


@pytest.mark.req("WRT-87")
@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), actions=st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=14))
@example(seed=1, actions=["put", "put", "put", "rival", "flush"])  # The flush told only of the other region.
@example(seed=1, actions=["put", "put", "put", "rival", "look"])  # The close told of nothing.
def test_what_a_flush_or_a_close_promised_is_durable(seed: int, actions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        history = _History(Path(directory), seed)
        history.run([*actions, "close"], failing=0.3)

        assert history.mismatches() == []
