"""An actor that writes to all regions at once through a table writer, and meets their other writers."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, MemwalError
from memwal_core.region.spec import RegionValue
from memwal_core.writer import TableWriter, Takeover
from testkit.faults.failpoints import SimulatedCrash
from testkit.inline_executor import InlineExecutor
from testkit.simulation.actors.writers import completed, facts, keys_by_region, note_written
from testkit.simulation.model import Value
from testkit.simulation.world import KEYS, Actor, World
from testkit.tables.people import people

_Part = dict[int, Value]


class TableWriterActor(Actor):
    """A process that routes each batch to the regions of the table.

    It opens with either answer to a region that seems to have a live writer. When one of its regions
    was taken from it, it starts anew; when it is replaced without being told, it lives on as a zombie.
    """

    def __init__(self, world: World, name: str, spec_id: int = 1) -> None:
        """Begin without a writer."""
        super().__init__(world, name)
        self._spec_id = spec_id
        self._regions = keys_by_region(world, spec_id)
        self._writer: TableWriter | None = None
        self._zombie: TableWriter | None = None
        self._is_closing = False

    def turn(self) -> str:
        """Do one thing with the present writer, or with the zombie."""
        rng = self._world.rng
        if self._zombie is not None and rng.random() < 0.2:
            return "zombie " + self._use(self._zombie, "put")
        if self._writer is None:
            return self._open()
        action = rng.choices(("put", "delete", "flush", "replace", "close"), (10, 4, 3, 1, 1))[0]
        if self._is_closing:
            action = "close"
        if action == "replace":
            self._settle(self._zombie)
            self._writer, self._zombie = None, self._writer
            return "is replaced without being told"
        return self._use(self._writer, action)

    def die(self) -> None:
        """Lose the memory of both writers."""
        self._settle(self._writer)
        self._settle(self._zombie)
        self._writer = self._zombie = None
        self._is_closing = False

    def _open(self) -> str:
        world = self._world
        takeover = world.rng.choice(tuple(Takeover))
        self._writer = TableWriter.open(
            world.table_of_writer(),
            spec_id=self._spec_id,
            takeover=takeover,
            executor=InlineExecutor(),
            failpoints=world.lance_failpoints,
        )
        return f"opened with takeover={takeover}"

    def _use(self, writer: TableWriter, action: str) -> str:
        world = self._world
        before = self._facts(writer)
        claimed = set(writer.writers)
        try:
            return self._act(writer, action)
        except FencedError:
            world.seen["table writer fenced"] += 1
            self._forget(writer)
            raise
        finally:
            world.seen.update({name: times - before.get(name, 0) for name, times in self._facts(writer).items()})
            world.seen["region claimed by a table writer"] += len(set(writer.writers) - claimed)

    def _act(self, writer: TableWriter, action: str) -> str:
        if action == "flush":
            flushed = writer.flush()
            self._promise(writer)
            return f"flushed {len(flushed)} regions"
        if action == "close":
            self._is_closing = True  # Where it fails, it takes only another close.
            try:
                writer.close()
            except MemwalError:
                if writer.is_closed:  # It has told that rows are lost, or that full MemTables could not be flushed.
                    self._forget(writer)
                raise
            self._promise(writer)
            self._forget(writer)
            return "closed"
        return self._write(writer, is_delete=action == "delete")

    def _write(self, writer: TableWriter, *, is_delete: bool) -> str:
        world, model = self._world, self._world.model
        keys = world.rng.choices(range(KEYS), k=world.rng.randint(2, 6))
        name = f"v{world.ids.directory_prefix()}"
        # Each region acknowledges for itself, so each region's rows are a write of their own to the model.
        written: Value = None if is_delete else name
        routed = {value: [key for key in keys if key in own] for value, own in self._regions.items()}
        parts: dict[RegionValue, _Part] = {value: dict.fromkeys(own, written) for value, own in routed.items() if own}
        since = {value: model.begin(part) for value, part in parts.items()}
        try:
            if is_delete:
                receipt = writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
            else:
                receipt = writer.put(completed(people(*keys, name=name), world.plain.dataset().schema))
        except (MemwalError, SimulatedCrash) as error:
            told = error.facts.keys() if isinstance(error, ConflictError) else set()
            refused = told & {"last_sign_of_life", "other_specs"}
            was_tried = not refused
            world.seen["takeover refused"] += "last_sign_of_life" in refused
            world.seen["refused for another spec"] += "other_specs" in refused
            for value, part in parts.items():
                if was_tried:
                    model.in_doubt(part, (writer, value))
                else:
                    model.refused(part)
            if not was_tried:
                self._forget(writer)  # Whoever comes next may be allowed to take the region.
            if isinstance(error, CommitUnknownError):
                return f"does not know whether {_shown(parts)} happened"
            raise
        is_durable = all(each.durable for each in receipt.regions.values())
        for value, part in parts.items():
            note_written(world, since[value], part, (writer, value), is_durable=is_durable)
        world.seen["table delete" if is_delete else "table put"] += 1
        world.seen[f"table write by spec {self._spec_id}"] += 1
        world.seen["table write to several regions"] += len(parts) > 1
        return f"wrote {_shown(parts)}"

    def _forget(self, writer: TableWriter) -> None:
        self._settle(writer)
        if self._writer is writer:
            self._writer, self._is_closing = None, False
        if self._zombie is writer:
            self._zombie = None

    def _promise(self, writer: TableWriter) -> None:
        for value in self._regions:
            self._world.model.promised((writer, value))

    def _settle(self, writer: TableWriter | None) -> None:
        for value in self._regions:
            self._world.model.settled((writer, value))

    def _facts(self, writer: TableWriter) -> dict[str, int]:
        found: dict[str, int] = {}
        for region in writer.writers.values():
            for name, times in facts(region).items():
                found[name] = found.get(name, 0) + times
        return found


def _shown(parts: Mapping[RegionValue, _Part]) -> str:
    return ", ".join(f"{part} to region {value[0]}" for value, part in parts.items())
