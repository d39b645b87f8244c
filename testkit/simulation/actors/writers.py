"""Actors that write: the present writer of a region, and those who do not know that they were replaced."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from memwal_core.errors import CommitUnknownError, FencedError, MemwalError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.ids import RegionId
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.region.spec import RegionRouter, RegionValue
from memwal_core.writer import RegionWriter
from memwal_core.writer.region_directory import RegionDirectory
from memwal_core.writer.stats import FLUSH_FAILURES, FLUSHES, WAL_FAILURES, WAL_LATE_ENTRIES
from testkit.faults.failpoints import SimulatedCrash
from testkit.simulation.contests import WriteKind
from testkit.simulation.model import Value
from testkit.simulation.world import KEYS, Actor, World
from testkit.tables.people import VECTOR, people


class WriterActor(Actor):
    """A process that writes one region: it opens, writes, flushes, closes, and opens again.

    When it is replaced without being told, the old writer lives on as a zombie.

    Args:
        world: Where it lives.
        name: Its name.
        value: The region value whose region it writes.
    """

    def __init__(self, world: World, name: str, value: RegionValue) -> None:
        """Begin without a writer; the region may not exist yet."""
        super().__init__(world, name)
        self._value = value
        self._keys = keys_by_region(world).get(value, [])
        self._writer: RegionWriter | None = None
        self._zombies: list[RegionWriter] = []

    def turn(self) -> str:
        """Do one thing with the present writer, or with a zombie."""
        rng = self._world.rng
        if self._zombies and rng.random() < 0.25:
            return self._use_zombie(rng.choice(self._zombies))
        if self._writer is None:
            return self._open()
        if self._world.contested is WriteKind.WAL_ENTRY:
            action = "put"
        elif self._world.contested is WriteKind.REGION_MANIFEST:
            action = "flush"
        else:
            action = rng.choices(("put", "delete", "flush", "rotate", "replace", "close"), (10, 2, 4, 2, 1, 1))[0]
        if action == "replace":
            for forgotten in self._zombies[:-1]:
                self._world.model.settled(forgotten)
            self._zombies = [*self._zombies[-1:], self._writer]
            self._writer = None
            return "is replaced without being told"
        return self._use(self._writer, action)

    def die(self) -> None:
        """Lose all writers' memory."""
        for writer in (self._writer, *self._zombies):
            self._world.model.settled(writer)
        self._writer = None
        self._zombies = []

    def _open(self) -> str:
        world, region_id = self._world, self._region()
        self._writer = RegionWriter.open(world.table_of_writer(), region_id, failpoints=world.lance_failpoints)
        return f"opened with epoch {self._writer.writer_epoch}"

    def _region(self) -> RegionId:
        world = self._world
        details = world.table.require_writable()
        manifests = ManifestStore(
            world.store, world.ids, settings=world.settings.storage, clock=world.clock, rng=world.rng
        )
        # Of the two regions of a run one has each codec.
        status = RegionStatus((world.seed + int(str(self._value[0]))) % 2)
        world.seen[f"writer of a region that is {status.name}"] += 1
        directory = RegionDirectory(world.store, details.region_specs[0], manifests, world.ids, 1, status)
        return directory.ensure_all([self._value])[self._value]

    def _use_zombie(self, zombie: RegionWriter) -> str:
        try:
            return "zombie " + self._use(zombie, self._world.rng.choice(("put", "put", "flush")))
        except FencedError:
            self._world.seen["zombie fenced"] += 1
            if zombie in self._zombies:
                self._zombies.remove(zombie)
            return "zombie was fenced"

    def _use(self, writer: RegionWriter, action: str) -> str:
        before = facts(writer)
        try:
            return self._act(writer, action)
        except FencedError:
            self._world.seen["writer fenced"] += 1
            self._forget(writer)
            raise
        finally:
            self._world.seen.update(facts(writer) - before)

    def _act(self, writer: RegionWriter, action: str) -> str:
        if action == "flush":
            record = writer.flush()
            self._world.model.promised(writer)
            return f"flushed generation {record.generation}" if record is not None else "had nothing to flush"
        if action == "rotate":
            return f"froze {writer.memtable.generation - 1}" if writer.rotate() else "had nothing to freeze"
        if action == "close":
            self._close(writer)
            return "closed"
        return self._write(writer, is_delete=action == "delete")

    def _close(self, writer: RegionWriter) -> None:
        try:
            writer.close()
        except MemwalError:
            if writer.is_closed:  # It has told that rows are lost, or that full MemTables could not be flushed.
                self._forget(writer)
            raise
        self._world.model.promised(writer)
        self._forget(writer)

    def _forget(self, writer: RegionWriter) -> None:
        self._world.model.settled(writer)
        if self._writer is writer:
            self._writer = None

    def _write(self, writer: RegionWriter, *, is_delete: bool) -> str:
        rng, model = self._world.rng, self._world.model
        keys = rng.choices(self._keys, k=rng.randint(1, 4))
        name = f"v{self._world.ids.directory_prefix()}"
        writes: dict[int, Value] = dict.fromkeys(keys, None if is_delete else name)
        since = model.begin(writes)
        try:
            if is_delete:
                receipt = writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
            else:
                receipt = writer.put(completed(people(*keys, name=name), writer.memtable.schema))
        except (MemwalError, SimulatedCrash) as error:
            # Whatever the error says, the rows may be in the WAL, or follow with the next write.
            model.in_doubt(writes, writer)
            if isinstance(error, CommitUnknownError):
                return f"does not know whether {writes} happened"
            raise
        note_written(self._world, since, writes, writer, is_durable=receipt.durable)
        self._world.seen["delete" if is_delete else "put"] += 1
        return f"wrote {writes} as entry {receipt.wal_id} under epoch {writer.writer_epoch}"


def facts(writer: RegionWriter) -> Counter[str]:
    """Return what a writer has done so far."""
    stats = writer.stats()
    facts = Counter({f"rotation by {reason}": times for reason, times in stats.rotations.items()})
    for name in (FLUSHES, FLUSH_FAILURES, WAL_FAILURES, WAL_LATE_ENTRIES):
        facts[name] = stats.counts.get(name, 0)
    return facts


def note_written(world: World, since: int, writes: dict[int, Value], writer: object, *, is_durable: bool) -> None:
    """Note what a put of a writer promises."""
    if is_durable:
        world.model.acknowledged(since, writes, writer)
    else:
        world.model.accepted(since, writes, writer)
        world.seen["buffered write"] += 1


def completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Add the columns that the table has got since: vectors of the keys, and others without values."""
    for field in schema:
        if field.name == VECTOR:
            points = [[float(key), 0.0] for key in rows.column("id").to_pylist()]
            rows = rows.append_column(field, pa.array(points, field.type))
        elif field.name not in (*rows.schema.names, TOMBSTONE_COLUMN):
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def keys_by_region(world: World, spec_id: int = 1) -> dict[RegionValue, list[int]]:
    """Return which of the simulation's keys belong to which region value of a spec."""
    state = world.plain.state()
    specs = {each.spec_id: each for each in world.plain.require_writable(state).region_specs}
    router = RegionRouter(specs[spec_id], state.field_ids)
    return {part.value: part.rows.column("id").to_pylist() for part in router.route(people(*range(KEYS)))}
