"""What came of an hour of a fleet, and what of it should not have happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testkit.fleet.tables import FleetTable
from testkit.fleet.watching import Watching


@dataclass
class FleetOutcome:
    """What came of it.

    Attributes:
        reads: Table -> how often all its rows were compared while it was written.
        batches: Table -> how many its writer wrote.
        cycles: Table -> cycles that were recorded as ended.
        killed: Kind of process -> how often.
        ended: Server of Airflow -> how often it ended by itself, as on SQLite where the machine is too busy.
        failed: Table -> tasks that failed for good.
        refused: Reads of sound tables that ended with an error.
        wrong: What a table held that it may not hold, and writers that failed: no hour goes on after that.
    """

    tables: tuple[FleetTable, ...]
    watching: Watching
    reads: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)
    cycles: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    failed: dict[str, list[str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Whatever should not have happened."""
        named = {table.name for table in self.tables}
        found = [f"{table.name}: {what}" for table in self.tables for what in self._problems(table)]
        found += [f"{what} failed for good" for name in self.failed.keys() - named for what in self.failed[name]]
        return [
            *self.wrong,
            *self.refused,
            *found,
            *(f"no answer of the {who}" for who, n in self.watching.looks.items() if not n),
        ]

    def lines(self) -> Iterator[str]:
        """Tell all of it, the problems last."""
        for table in self.tables:
            counts = f"{self.batches[table.name]} batches, {self.reads[table.name]} reads compared"
            yield f"{table.name}: {counts}, {self.cycles[table.name]} cycles"
            for who, said in (("watch", self.watching.by_watch), ("page", self.watching.on_page)):
                yield from (f"  the {who} said {what} {when}" for what, when in said.get(table.name, {}).items())
            if failed := self.failed.get(table.name):
                yield f"  {len(failed)} tasks failed for good"
        yield f"{len(self.tables)} tables, of which {sum(table.is_sound for table in self.tables)} sound"
        counted = (self.batches, self.reads, self.cycles)
        yield "{} batches, {} reads compared, {} cycles".format(*(each.total() for each in counted))
        yield f"{self.watching.looks['watch']} looks of the watch, {self.watching.looks['page']} of the page"
        for what, counter in (("killed", self.killed), ("ended by themselves", self.ended)):
            yield f"{what}: " + (", ".join(f"{who} {times}" for who, times in sorted(counter.items())) or "none")
        problems = self.problems
        yield from problems
        yield f"{len(problems)} problems"

    def take_tasks(self, run: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Keep the failed tasks of a cycle by table, which one that was killed does not say itself."""
        tables = {task["map_index"]: task["rendered_map_index"] for task in tasks if task["rendered_map_index"]}
        for task in tasks:
            if task["state"] == "failed":
                table = task["rendered_map_index"] or tables.get(task["map_index"], "")
                self.failed.setdefault(table, []).append(f"{task['task_id']} of {run}")

    def _problems(self, table: FleetTable) -> Iterator[str]:
        by_watch, on_page = (said.get(table.name, {}) for said in (self.watching.by_watch, self.watching.on_page))
        if not table.is_sound:
            if table.ails not in by_watch:
                yield f"the watch never said {table.ails}, but {sorted(by_watch)}"
            if not any(table.told in said.words for said in on_page.values()):
                yield f"the page never said {table.told}, but {[said.words for said in on_page.values()]}"
            begins = [what for what in self.failed.get(table.name, ()) if what.startswith("cycle.begin ")]
            if len(begins) > 1:
                yield f"people were called {len(begins)} times within hours: {', '.join(begins)}"
            return
        yield from (f"the watch said {what} {when}" for what, when in by_watch.items())
        yield from (f"the page said {what} {when}" for what, when in on_page.items())
        yield from (f"{what} failed for good" for what in self.failed.get(table.name, ()))
        if not self.cycles[table.name]:
            yield "no cycle ended"
