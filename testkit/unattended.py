"""A table that nobody looks after, for days: a live writer, a maintenance cycle every few minutes, and no person.

Code and files are real; only the clock is the test's. It begins as long ago as the stretch lasts, and each new file is
dated by it, so whoever looks at the table afterwards with the system's clock finds files of the right age.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from memwal_core.clock import SystemClock
from memwal_core.jobs.cycle.report import MaintainReport
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.observe.findings import Level
from memwal_core.observe.health import Health
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.rng import seeded_rng
from testkit.tables.people import make_people_table, people, with_clock

_KEYS = 20_000
_ROWS = 20
_BUCKETS = 2


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a table consists of at one moment.

    Attributes:
        files: How many, by kind.
        sizes: Their bytes, by kind; a file with several links counts once.
    """

    files: Counter[str]
    sizes: Counter[str]

    @property
    def size_bytes(self) -> int:
        """Bytes of everything."""
        return self.sizes.total()


@dataclass(frozen=True, slots=True)
class Alarm:
    """What `memwal status --check` said when it should have said nothing."""

    moment: datetime
    what: str


class Unattended:
    """A table with two regions, an index, a live writer and a scheduled cycle.

    Args:
        directory: An empty directory.
        hours: How long the stretch will last in all.
        settings: Those of writer and cycle.
        request: What each cycle is asked for.
        cycle_s: Seconds between two cycles; the writer puts rows three times in between.
    """

    def __init__(
        self,
        directory: Path,
        *,
        hours: float,
        settings: Settings,
        request: MaintainRequest | None = None,
        cycle_s: float = 600.0,
    ) -> None:
        """Make the table and open its writer."""
        self.uri = str(directory / "people.lance")
        self.clock = ManualClock(SystemClock().now() - timedelta(hours=hours))
        self.rows: dict[int, str] = {}
        """Key -> name of everything that was acknowledged."""
        self.alarms: list[Alarm] = []
        self.cycles: Counter[str] = Counter()
        """How often a step of a cycle ended in which way."""
        self._settings = settings
        self._request = request if request is not None else MaintainRequest()
        self._cycle_s = cycle_s
        self._rng = seeded_rng(1)
        self._puts = 0
        made = make_people_table(self.uri, rows=people(*range(_KEYS)), buckets=_BUCKETS, settings=settings)
        made.dataset().create_scalar_index("score", "BTREE")
        self.rows.update({key: f"p{key}" for key in range(_KEYS)})
        self._date()
        self._writer = TableWriter.open(with_clock(made, self.clock))

    @property
    def table(self) -> Table:
        """The table as a process opens it that begins now."""
        return Table.open(self.uri, settings=self._settings, clock=self.clock, rng=self._rng)

    def pass_hours(self, hours: float, *, look_every: int = 1) -> None:
        """Let time pass, with everything that happens meanwhile.

        Args:
            hours: How long.
            look_every: Cycles between two looks at the table's health.
        """
        for number in range(round(hours * 3600 / self._cycle_s)):
            for _ in range(3):
                self.clock.advance(self._cycle_s / 3)
                self._put()
            self.maintain()
            if number % look_every == 0:
                self.look()

    def maintain(self) -> MaintainReport:
        """Run one cycle."""
        report: MaintainReport = self.table.run(self._request)
        self.cycles.update(f"{step.step.value} {step.outcome.value}" for step in report.steps)
        self._date()
        return report

    def look(self) -> Health:
        """Judge the table as `memwal status --check` does, and note what it finds."""
        health = self.table.health()
        if health.level is not Level.OK:
            texts = [f"{each.finding_id}: {each.summary} {dict(each.evidence)}" for each in health.findings]
            self.alarms += [Alarm(self.clock.now(), text) for text in texts]
        return health

    def close(self) -> None:
        """Flush and close the writer, and merge everything."""
        self._writer.flush()
        self._writer.close()
        self._date()
        self.maintain()

    def inventory(self) -> Inventory:
        """Count what is there."""
        files: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        counted: set[int] = set()
        for path, status in self._files():
            kind = _kind(Path(path).relative_to(self.uri))
            files[kind] += 1
            if status.st_ino not in counted:
                sizes[kind] += status.st_size
            counted.add(status.st_ino)
        return Inventory(files, sizes)

    def _put(self) -> None:
        ids = self._rng.sample(range(_KEYS), _ROWS)
        self._puts += 1
        name = f"put {self._puts}"
        self._writer.put(people(*ids, name=name))
        self.rows.update(dict.fromkeys(ids, name))
        self._date()

    def _date(self) -> None:
        """Date what was written since the last call."""
        now_ns = round(self.clock.now().timestamp() * 1e9)
        for path, status in self._files():
            if status.st_mtime_ns > now_ns:
                os.utime(path, ns=(now_ns, now_ns))

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        waiting = [self.uri]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    else:
                        yield entry.path, status


_PLACES = ("_versions", "_transactions", "_indices", "_deletions", "data")
_BELOW_MEM_WAL = {"wal": "WAL entries", "manifest": "region manifests"}


def _kind(path: Path) -> str:
    """Return the kind of a file from its place."""
    first, *rest = path.parts
    if first != "_mem_wal":
        return first if first in _PLACES else "others"
    if rest[0].startswith("_"):
        return rest[0]
    return _BELOW_MEM_WAL.get(rest[1], "flushed MemTables")
