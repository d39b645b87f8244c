"""Those whom a seed draws besides the usual actors: another client's writer, copies, a slow or stale store, clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.errors import CommitUnknownError, FrozenError
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.table import Table
from memwal_core.writer.region_directory import RegionDirectory
from testkit.simulation.actors.writers import completed, keys_by_region
from testkit.simulation.model import TableMoment, Value, WrongRowError
from testkit.simulation.world import JUMPED_BACK, Actor, World
from testkit.tables.people import people
from testkit.tables.readable import as_model

_SLOW_S = (0.0, 0.0, 2.0, 15.0)
_JUMPS_S = (-600.0, -30.0, 30.0, 600.0)
_MAX_COPIES = 3
COPY_SHOWS = Consistency.DURABLE
"""What of a copy is read: all of it."""


class NativeWriterActor(Actor):
    """Lance's own writer of the region that it may write: opened, used and closed within a turn.

    Its requests pass no store of ours, so nothing interrupts it; it interrupts others, and fences their writers.
    """

    def __init__(self, world: World, name: str) -> None:
        """Find the region's keys."""
        super().__init__(world, name)
        # As for our writers: of the two regions of a run one has each codec.
        self._value = (world.seed % 2,)
        self._keys = keys_by_region(world)[self._value]

    def turn(self) -> str:
        """Put rows, or delete some.

        Raises:
            CommitUnknownError: Lance did not write, or did not say so.
        """
        world = self._world
        region = self._region()
        keys = world.rng.choices(self._keys, k=world.rng.randint(1, 3))
        name = f"v{world.ids.directory_prefix()}"
        is_delete = world.rng.random() < 0.2
        writes: dict[int, Value] = dict.fromkeys(keys, None if is_delete else name)
        since = world.model.begin(writes)
        try:
            dataset = world.plain.dataset()
            with dataset.mem_wal_writer(region, max_wal_flush_interval_ms=1) as writer:
                self._write(writer, dataset, list(writes), None if is_delete else name)
        except (OSError, RuntimeError, ValueError) as error:
            world.model.in_doubt(writes, self)
            world.model.settled(self)
            raise CommitUnknownError("Lance did not write", remedy="look again", error=str(error)) from error
        world.model.acknowledged(since, writes, self)
        world.seen["native delete" if is_delete else "native put"] += 1
        return f"wrote {writes}"

    def _region(self) -> str:
        world = self._world
        spec = world.table.require_writable().region_specs[0]
        manifests = ManifestStore(
            world.store, world.ids, settings=world.settings.storage, clock=world.clock, rng=world.rng
        )
        directory = RegionDirectory(world.store, spec, manifests, world.ids, 1, RegionStatus.ACTIVE)
        return str(directory.ensure_all([self._value])[self._value])

    @staticmethod
    def _write(writer: Any, dataset: lance.LanceDataset, keys: list[int], name: str | None) -> None:  # noqa: ANN401
        if name is None:
            writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
        else:
            writer.put(completed(people(*keys, name=name), dataset.schema))


class CopyActor(Actor):
    """Somebody who makes backups and clones while everybody works, reads them, and then maintains them."""

    def __init__(self, world: World, name: str) -> None:
        """Begin without copies."""
        super().__init__(world, name)
        self._copies = 0
        self._began: TableMoment | None = None

    def turn(self) -> str:
        """Make a copy, or finish a half-made one, and compare it with what was possible since it was begun.

        Raises:
            WrongRowError: The copy shows what the table never showed meanwhile, or other rows once it is maintained.
        """
        world = self._world
        if self._copies == _MAX_COPIES:
            return "does nothing"
        target = str(Path(world.plain.uri).with_name(f"{self.name}-{self._copies}.lance"))
        request = (CloneRequest if self._copies % 2 else BackupRequest)(target=target)
        self._began = began = self._began or world.model.moment()
        table = Table(OpenTable.of(world.table))
        outcome = table.run(request).outcome
        found = _rows_of(target)
        wrong = world.model.mismatches_since(began, found)
        if wrong:
            raise WrongRowError(f"the copy {target}: {wrong}")
        self._copies, self._began = self._copies + 1, None
        world.seen[f"{request.info.name} {outcome}"] += 1
        return f"copied {len(found)} rows, {self._maintained(target, found)}"

    def _maintained(self, target: str, found: dict[int, str]) -> str:
        copy = Table.open(target, settings=self._world.settings)
        try:
            copy.run(RelocateRequest())
            copy.run(FlushRequest(fence=True))
            outcome = copy.run(MergeRequest()).outcome
        except FrozenError:
            return "frozen as the table was"
        rows = _rows_of(target)
        if rows != found:
            raise WrongRowError(f"the copy {target} had {found}, and has {rows} since it is maintained")
        self._world.seen[f"copy merged: {outcome}"] += 1
        return f"merged: {outcome}"


def _rows_of(uri: str) -> dict[int, str]:
    reader = MergedReader(TableReader.open(uri), consistency=COPY_SHOWS)
    return as_model(reader.to_arrow(ScanRequest(columns=("id", "name"))))


class SlowStoreActor(Actor):
    """Makes every later call to the store take seconds, or none: leases expire and epochs grow old within turns."""

    def turn(self) -> str:
        """Choose how long calls take from now on."""
        world = self._world
        world.call_takes_s = world.rng.choice(_SLOW_S)
        if world.call_takes_s:
            world.seen["slow store"] += 1
        return f"a call to the store takes {world.call_takes_s:.0f} s"


class OldHintsActor(Actor):
    """Makes the store answer hints as they were long ago, as a cache in front of it may, or as they are."""

    def turn(self) -> str:
        """Change what hints say."""
        store = self._world.store
        store.has_old_hints = not store.has_old_hints
        self._world.seen["old hints"] += store.has_old_hints
        return "hints are old" if store.has_old_hints else "hints are new"


class WrongClockActor(Actor):
    """Sets the wall clock forward or back by minutes, as an operator or NTP may; monotonic time goes on."""

    def turn(self) -> str:
        """Jump."""
        seconds = self._world.rng.choice(_JUMPS_S)
        self._world.clock.jump_wall_time(seconds)
        self._world.seen[JUMPED_BACK if seconds < 0 else "clock jumped forward"] += 1
        return f"the clock jumps by {seconds:.0f} s"


STRANGERS: tuple[type[Actor], ...] = (
    NativeWriterActor,
    CopyActor,
    SlowStoreActor,
    WrongClockActor,
    OldHintsActor,
)
