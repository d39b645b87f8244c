"""Switch one safety rule off: the simulation must find the loss. Otherwise it proves nothing.

Where another rule would step in first, it is switched off with it: each control ends in rows that are lost, doubled,
resurrected or changed, and not in an error.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pytest

from memwal_core.errors import MemwalError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.paths import generation_path
from memwal_core.jobs.gc import survey
from memwal_core.jobs.gc.kinds import flushed, wal_entries
from memwal_core.memtable import MemTable
from memwal_core.memtable.memtable import StoredEntry
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest, store
from memwal_core.wal import WalAppender
from memwal_core.writer import TableWriter, table_context
from memwal_core.writer.claim import ownership
from memwal_core.writer.flushing import flush_queue
from testkit.simulation import Chances, SimulationFailedError, Symptom, World, simulate
from testkit.simulation.actors.jobs import JobActor, MergeActor, SimulatedJob, TimeActor
from testkit.simulation.actors.table_writers import TableWriterActor
from testkit.simulation.actors.writers import WriterActor
from testkit.simulation.scenes import AIMED, EVERYBODY, RIVALS, rivals
from testkit.simulation.simulate import everybody
from testkit.tables.foreign_merges import merge_natively
from tests.simulation.misrouting import Misrouting

ROUGH = Chances(interleave=0.1, fail=0.03, crash=0.02)
# Garbage collection makes many requests: under rough chances it seldom gets to its gates.
CALM = Chances(interleave=0.1, fail=0.005, crash=0.002)
# Some of several regions must answer for one to be told of, and not the other.
CLOSING = Chances(interleave=0.1, fail=0.02, crash=0.002)
MAX_SEEDS = 100


def _symptom(
    directory: Path, seed: int, actors: Callable = everybody, chances: Chances = ROUGH, turns: int = EVERYBODY.turns
) -> Symptom | None:
    """Return what some seed fails of: ``seed``, the shortest run that does, or another once the code has moved on.

    An error that nothing explains is no answer: another rule has stopped what this one is there for.
    """
    for tried in (seed, *(other for other in range(MAX_SEEDS) if other != seed)):
        scratch = directory / str(tried)
        scratch.mkdir()
        try:
            simulate(tried, scratch, schedule=turns, chances=chances, actors=actors)
        except SimulationFailedError as error:
            if error.symptom is not Symptom.ERROR:
                return error.symptom
    return None


def _record_anything(
    stored: RegionManifest, flushed: FlushedGeneration, replay_after_wal_id: int, wal_id_last_seen: int
) -> RegionManifest:
    """Record a flushed MemTable whatever is recorded already: the rules that would notice first are left out."""
    others = [each for each in stored.flushed_generations if each.generation != flushed.generation]
    return replace(
        stored,
        replay_after_wal_id=replay_after_wal_id,
        wal_id_last_seen=max(stored.wal_id_last_seen, wal_id_last_seen, replay_after_wal_id),
        current_generation=flushed.generation + 1,
        flushed_generations=tuple(sorted((*others, flushed), key=lambda each: each.generation)),
    )


def _let_flushes_come_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_queue, "record_flush", _record_anything)
    monkeypatch.setattr(store, "transition_violations", lambda *_, **__: [])


@pytest.mark.req("WRT-76", "WRT-78", "LEASE-13")
def test_without_the_epoch_check_before_a_flush_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of what follows a flush are left out, too: they refuse what a zombie flushes late."""
    monkeypatch.setattr(ownership, "check_epoch", lambda local, stored: None)
    _let_flushes_come_in_any_order(monkeypatch)
    assert _symptom(tmp_path, 6, rivals, AIMED, RIVALS.turns) is Symptom.WRONG_ROWS


@pytest.mark.req("WRT-42")
def test_without_the_replay_of_late_entries_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = WalAppender.append
    monkeypatch.setattr(
        WalAppender, "append", lambda self, *args, **named: replace(append(self, *args, **named), late=())
    )
    # A MemTable refuses entries that do not follow each other.
    monkeypatch.setattr(MemTable, "_advance", _take_any_entry)
    assert _symptom(tmp_path, 11, _crowd, AIMED, RIVALS.turns) is Symptom.WRONG_ROWS


def _crowd(world: World) -> list:
    """Several writers of one region, who meet at every entry."""
    return [*(WriterActor(world, f"writer-{number}", (0,)) for number in range(4)), MergeActor(world, "merger")]


def _take_any_entry(memtable: MemTable, entry: StoredEntry) -> None:
    memtable._last_wal_id = entry.wal_id
    memtable._entries.append(entry)


@pytest.mark.req("MEM-22")
def test_without_waiting_for_failed_flushes_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = flush_queue.FlushQueue._failed

    def give_up(self: flush_queue.FlushQueue, memtable: MemTable, error: MemwalError) -> None:
        failed(self, memtable, error)
        self._state.queue._waiting.popleft()

    monkeypatch.setattr(flush_queue.FlushQueue, "_failed", give_up)
    _let_flushes_come_in_any_order(monkeypatch)
    assert _symptom(tmp_path, 9) is Symptom.WRONG_ROWS


@pytest.mark.req("WRT-01")
def test_with_a_table_writer_that_routes_otherwise_rows_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_context, "RegionRouter", Misrouting)
    assert _symptom(tmp_path, 65) is Symptom.WRONG_ROWS


def _routing(world: World) -> list:
    """Table writers that take each other's regions, and one that takes one of them."""
    return [
        *(TableWriterActor(world, f"table-writer-{number}") for number in range(3)),
        WriterActor(world, "writer", (0,)),
    ]


@pytest.mark.req("WRT-87")
def test_without_what_an_earlier_close_met_buffered_rows_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = TableWriter.close

    def forgetful_close(self: TableWriter) -> None:
        self._lost.clear()
        close(self)

    monkeypatch.setattr(TableWriter, "close", forgetful_close)
    # Seed 140 has buffered writers of four regions.
    assert _symptom(tmp_path, 140, _routing, CLOSING) is Symptom.WRONG_ROWS


class GapMerger(MergeActor):
    """A merger that takes the newest generation first, which pylance accepts."""

    def turn(self) -> str:
        world = self._world
        manifests = ManifestStore(world.store, world.ids, settings=world.settings.storage)
        for manifest in manifests.load_many(manifests.region_ids(), 1):
            state = world.table.state()
            newest = max(manifest.flushed_generations, key=lambda flushed: flushed.generation, default=None)
            if newest is None or newest.generation <= state.details.merged_generation(manifest.region_id):
                continue
            rows = lance.dataset(world.store.uri_of(generation_path(manifest.region_id, newest.path))).to_table()
            live = rows.filter(~rows.column(TOMBSTONE_COLUMN).to_numpy()).drop_columns([TOMBSTONE_COLUMN])
            merge_natively(world.table, live, {manifest.region_id: newest.generation})
            return f"merged generation {newest.generation} without a look at the ones before"
        return "nothing to merge"


@pytest.mark.req("MRG-19")
def test_with_a_merger_that_leaves_gaps_rows_are_lost(tmp_path: Path) -> None:
    def actors(world: World) -> list:
        return [*everybody(world)[:3], GapMerger(world, "gap-merger")]

    assert _symptom(tmp_path, 33, actors) is Symptom.WRONG_ROWS


def _patient(world: World) -> list:
    """Writers, all jobs, and much time: what garbage collection needs to have something to do."""
    return [
        *everybody(world),
        TimeActor(world, "more time"),
        JobActor(world, "collector", (SimulatedJob.GC, SimulatedJob.MERGE, SimulatedJob.CATCH_UP)),
    ]


@pytest.mark.req("GC-02", "GC-08")
def test_without_the_merge_condition_flushed_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed, "gate_of", lambda base, region_id, generation: None)
    assert _symptom(tmp_path, 11, _patient, CALM) is Symptom.WRONG_ROWS


@pytest.mark.req("GC-17", "GC-18")
def test_without_the_retained_versions_time_travel_loses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "retained_versions", lambda table, concurrency, **_: ())
    assert _symptom(tmp_path, 27, _patient, CALM) is Symptom.WRONG_ROWS


@pytest.mark.req("GC-08", "GC-09")
def test_without_the_references_of_flushed_memtables_their_rows_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seed 8 has no links: its flushed MemTables consist of WAL entries.
    monkeypatch.setattr(wal_entries, "_references", lambda region, directories: ({}, ""))
    assert _symptom(tmp_path, 0, _patient, CALM) is Symptom.UNREADABLE


@pytest.mark.req("GC-10", "GC-11")
def test_without_the_replay_pointer_unflushed_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = wal_entries._gate
    monkeypatch.setattr(wal_entries, "_gate", lambda entry, pointer, newest: gate(entry, newest, newest + 1))
    # What older writers know is behind the pointer, too.
    monkeypatch.setattr(wal_entries, "_settled", lambda *_: None)
    assert _symptom(tmp_path, 61, _patient, CALM) is Symptom.WRONG_ROWS
