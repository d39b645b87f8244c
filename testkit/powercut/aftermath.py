"""Whether a table has survived a cut: its rows, and whether every command works and tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import lance

from memwal_core.clock import SystemClock
from memwal_core.errors import MemwalError
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.findings import Severity
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader import Consistency
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.powercut.expected import ExpectedRows
from testkit.powercut.workload import table_of
from testkit.simulation.model import Value

_LATER = timedelta(days=30)
"""So late that the leases and the signs of life of the dead process are over."""
_PATIENCE_S = 60.0
"""How long a command may wait between attempts; the clock is manual, so no machine is too slow for it."""
_NEW_KEY = 1_000_000


class Aftermath:
    """Looks at a table after a cut, then works on it, and notes what is wrong.

    Args:
        uri: Where the state was built.
        expected: Which rows it may show.
        settings: Those of the recorded process.
    """

    def __init__(self, uri: str, expected: ExpectedRows, settings: Settings) -> None:
        """Look at nothing yet."""
        self.problems: list[str] = []
        self._clock = ManualClock(SystemClock().now() + _LATER)
        self._uri = uri
        self._expected = expected
        self._settings = settings

    def repair(self) -> None:
        """Set aside what is left of another program's commit."""
        opened = OpenTable.at(self._uri, settings=self._settings, clock=self._clock, even_if_damaged=True)
        self._run(Table(opened), RepairRequest())

    def look(self) -> None:
        """Look, and change nothing: status, doctor, a read of everything that was acknowledged, what is garbage."""
        table = self._open()
        if table is None:
            return
        self._try("status", table.status)
        self._try("doctor", lambda: self._diagnose(table))
        self._try("read", lambda: self._read(table))
        self._try("gc dry run", lambda: table.run(GcRequest()))

    def work(self, *, all_jobs: bool) -> None:
        """Do what an operator and the application would do next: merge, write, merge again, and perhaps every job."""
        table = self._open()
        if table is None:
            return
        requests: list[JobRequest] = [MergeRequest()]
        if all_jobs:
            requests += [CatchupRequest(), CompactRequest(force=True), SnapshotRequest(), GcRequest(dry_run=False)]
        self._run(table, MergeRequest())
        self._try("write", lambda: self._write(table))
        for request in requests:
            self._run(table, request)
        self._try("read after merge", lambda: self._read(table))
        self._try("read of the base table", self._read_base)

    def _run(self, table: Table, request: JobRequest) -> None:
        self._try(request.info.name, lambda: table.run(request))

    def _open(self) -> Table | None:
        opened: list[Table] = []
        self._try("open", lambda: opened.append(Table.open(self._uri, settings=self._settings, clock=self._clock)))
        return opened[0] if opened else None

    def _diagnose(self, table: Table) -> None:
        for each in table.doctor().damage:
            if each.severity is Severity.CRITICAL:
                self.problems.append(f"doctor: {each.finding_id} {each.summary} {dict(each.evidence)}")

    def _read(self, table: Table) -> None:
        rows = table.to_arrow(consistency=Consistency.DURABLE)
        self._compare(dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)), rows.num_rows)

    def _read_base(self) -> None:
        rows = lance.dataset(self._uri).to_table(columns=["id", "name"])
        self._compare(dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)), rows.num_rows)

    def _compare(self, found: dict[int, Value], rows: int) -> None:
        if rows != len(found):
            self.problems.append(f"{rows - len(found)} rows are there twice")
        new = {key: found.pop(key) for key in list(found) if key >= _NEW_KEY}
        if new not in ({}, self._new_rows()):
            self.problems.append(f"rows written after the cut are {new}")
        self.problems.extend(self._expected.problems(found))

    def _write(self, table: Table) -> None:
        with table.writer() as writer:
            writer.put(table_of(self._new_rows()))
            writer.flush()

    def _new_rows(self) -> dict[int, Value]:
        return {_NEW_KEY + number: f"new-{number}" for number in range(8)}

    def _try(self, what: str, act: Callable[[], object]) -> None:
        before, began = len(self.problems), self._clock.monotonic()
        try:
            act()
        except (MemwalError, OSError, ValueError) as error:
            self.problems.append(f"{type(error).__name__}: {error}")
        if self._clock.monotonic() - began > _PATIENCE_S:
            self.problems.append(f"waited {self._clock.monotonic() - began:.0f} s between attempts")
        self.problems[before:] = [f"{what}: {problem}" for problem in self.problems[before:]]
