"""Merges that die: at each named place, and by SIGKILL at any moment."""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.jobs.merge.commit.passes import MERGE_COMMIT, MERGE_COMMITTED, MERGE_SEARCHED
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import no_lease
from memwal_core.settings import MergeSettings, Settings
from memwal_core.table import Table
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.rival_mergers import WAYS, Way, merge_until, prepared_by
from testkit.processes.start import LONGEST_WAIT_S, start_process
from testkit.tables.native_regions import Delete, Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people

REGIONS = [native_region_id(number) for number in (1, 2)]
KILLS = 20
PLACES = (MERGE_SEARCHED, MERGE_COMMIT, MERGE_COMMITTED)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([PEOPLE.field("id")]))


def make_table(uri: str, generations: int) -> None:
    """Two regions (odd and even keys) whose generations insert, update, delete and bring back."""
    make_people_table(uri, rows=people(*range(40)))
    for remainder, region in enumerate(REGIONS):
        history = []
        for number in range(generations):
            first = 2 * (3 * number % 30) + remainder
            fresh = 1000 + 10 * number + remainder
            writes: list[Put | Delete] = [Put(people(first, fresh, fresh + 2, name=f"g{number}"))]
            if number % 3:
                writes.append(Delete(keys(fresh - 10, first + 2)))
            history.append(writes)
        write_native_generations(uri, region, history)


def visible(uri: str) -> dict[str, list[object]]:
    """What a reader sees: the base table under the generations above its progress."""
    admin = Table.open(uri)
    manifests = admin.opened.manifests.load_many(admin.opened.manifests.region_ids())
    merged = admin.base.state().require_details()
    unmerged = [
        replace(
            manifest,
            flushed_generations=tuple(
                flushed
                for flushed in manifest.flushed_generations
                if flushed.generation > merged.merged_generation(manifest.region_id)
            ),
        )
        for manifest in manifests
    ]
    return native_scan(uri, unmerged, PEOPLE.names, "id").to_pydict()


def base(uri: str) -> dict[str, list[object]]:
    return lance.dataset(uri).to_table().select(PEOPLE.names).sort_by("id").to_pydict()


@pytest.mark.req("MRG-06", "MRG-18", "MRG-27")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nth", [1, 2])
def test_crash_at_each_place_changes_nothing_that_a_reader_sees_and_a_repeat_finishes(tmp_path, place, nth):
    uri = str(tmp_path / "t")
    make_table(uri, 4)
    expected = visible(uri)

    with pytest.raises(SimulatedCrash):
        merge_until(uri, ArmedFailpoints().arm(place, nth=nth), max_generations=2)

    assert visible(uri) == expected
    merge_until(uri)
    assert base(uri) == expected
    details = Table.open(uri).base.state().require_details()
    assert {details.merged_generation(region) for region in REGIONS} == {4}


class Worker:
    """A merge process that says when it is ready, merges when told, and may die at any time."""

    def __init__(self, uri: Path, max_generations: int, way: Way) -> None:
        self.process, self._connection = start_process(_merge, str(uri), max_generations, way, duplex=True)

    def wait_until_ready(self) -> None:
        assert self._connection.recv() == "ready"

    def let_go(self) -> None:
        self._connection.send("go")

    def outcome(self) -> str:
        return self._connection.recv()

    def finish(self) -> None:
        self.wait_until_ready()
        self.let_go()
        self.end()

    def end(self) -> None:
        self.process.join(LONGEST_WAIT_S)
        assert self.process.exitcode is not None
        self._connection.close()


def _merge(uri: str, max_generations: int, way: Way, connection: Connection) -> None:
    bounds = prepared_by(way, MergeSettings(max_generations=max_generations, max_attempts=50))
    admin = Table.open(uri, settings=Settings(merge=bounds))
    connection.send("ready")
    connection.recv()
    # Without a lease: workers meet as rivals, and one that is killed must not keep the next from merging.
    connection.send(admin.run(MergeRequest(), guard=no_lease).outcome.value)


def merged_generations(table: Path) -> int:
    details = Table.open(str(table)).base.state().require_details()
    return sum(details.merged_generation(region) for region in REGIONS)


def await_progress(worker: Worker, table: Path, wanted: int) -> None:
    while merged_generations(table) < wanted and worker.process.is_alive():
        threading.Event().wait(0.01)


@pytest.mark.slow
@pytest.mark.req("MRG-06", "MRG-18")
@pytest.mark.parametrize("way", WAYS)
def test_killed_processes_lose_nothing_and_the_next_one_goes_on(tmp_path, way):
    pristine = tmp_path / "pristine"
    make_table(str(pristine), 25)
    expected = visible(str(pristine))
    rng = random.Random(20)
    table = tmp_path / "t"
    shutil.copytree(pristine, table)
    killed_halfway = merged = 0
    following = Worker(table, 1, way)
    for _ in range(KILLS):
        worker, following = following, Worker(table, 1, way)
        worker.wait_until_ready()
        worker.let_go()
        await_progress(worker, table, merged + rng.randrange(3))
        # Not a wait for a condition: the moment of death is what varies.
        threading.Event().wait(rng.uniform(0, 0.25))
        worker.process.kill()
        worker.end()
        assert visible(str(table)) == expected
        merged = merged_generations(table)
        killed_halfway += 0 < merged < 50
        if merged == 50:
            following.finish()
            shutil.rmtree(table)
            shutil.copytree(pristine, table)
            following = Worker(table, 1, way)
            merged = 0
    following.finish()
    assert base(str(table)) == expected
    assert killed_halfway >= 5


@pytest.mark.req("MRG-14", "MRG-15")
def test_four_processes_of_both_ways_at_once_end_like_one(tmp_path):
    table, alone = tmp_path / "t", tmp_path / "alone"
    make_table(str(table), 10)
    shutil.copytree(table, alone)
    Table.open(str(alone)).run(MergeRequest())

    workers = [Worker(table, each, way) for each, way in ((1, "join"), (1, "units"), (2, "units"), (3, "join"))]
    for worker in workers:
        worker.wait_until_ready()
    for worker in workers:
        worker.let_go()
    outcomes = [worker.outcome() for worker in workers]
    for worker in workers:
        worker.end()

    assert set(outcomes) <= {"done", "nothing_to_do"}
    assert base(str(table)) == base(str(alone))
    details = Table.open(str(table)).base.state().require_details()
    assert {details.merged_generation(region) for region in REGIONS} == {10}
