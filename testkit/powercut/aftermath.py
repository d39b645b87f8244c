"""Whether a table has survived a cut: its rows, and whether every command works and tells the truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import lance
import pyarrow as pa

from memwal_core.clock import SystemClock
from memwal_core.errors import MemwalError, ObjectNotFoundError
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.observe.findings import Severity
from memwal_core.reader import Consistency
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.powercut.copies import Copied
from testkit.powercut.expected import ExpectedRows
from testkit.powercut.workload import table_of
from testkit.simulation.model import Value
from testkit.simulation.view import lsm_view

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

    def look_at_copies(self, copies: Sequence[Copied], *, finish: bool) -> None:
        """Read the copies of the table: each shows the rows of its moment, or is no table yet.

        Args:
            copies: Those that were begun.
            finish: Whether to run again what was making them.
        """
        for each in copies:
            self._read_copy(each)
        if not finish:
            return
        for each in copies:
            self._try(f"{each.operation} again", lambda each=each: self._finish(each))  # type: ignore[misc]
        # Nothing of the original may be needed.
        aside = f"{self._uri}-aside"
        os.rename(self._uri, aside)
        for each in copies:
            self._read_copy(replace(each, is_there=True))
            self._try(f"plain read of the {each.operation}", lambda each=each: self._read_plainly(each))  # type: ignore[misc]
        os.rename(aside, self._uri)

    def _read_copy(self, copied: Copied) -> None:
        def read() -> None:
            try:
                table = self._table(copied.uri)
            except ObjectNotFoundError:
                if copied.is_there:
                    raise
                return
            self._compare(table.to_arrow(consistency=Consistency.DURABLE), copied.expected)

        self._try(f"read of the {copied.operation}", read)

    def _finish(self, copied: Copied) -> None:
        if copied.operation == "backup":
            outcome = self._table(self._uri).run(BackupRequest(target=copied.uri)).outcome
        else:
            outcome = self._table(copied.uri).run(RelocateRequest()).outcome
        expected = {JobOutcome.NOTHING_TO_DO} | ({JobOutcome.DONE} if not copied.is_done else set())
        if outcome not in expected:
            self.problems.append(f"{outcome} and not {' or '.join(sorted(expected))}")

    def _read_plainly(self, copied: Copied) -> None:
        self.problems.extend(copied.expected.problems(lsm_view(self._table(copied.uri).base)))

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
        self._try("open", lambda: opened.append(self._table(self._uri)))
        return opened[0] if opened else None

    def _table(self, uri: str) -> Table:
        return Table.open(uri, settings=self._settings, clock=self._clock)

    def _diagnose(self, table: Table) -> None:
        for each in table.doctor().damage:
            if each.severity is Severity.CRITICAL:
                self.problems.append(f"doctor: {each.finding_id} {each.summary} {dict(each.evidence)}")

    def _read(self, table: Table) -> None:
        self._compare(table.to_arrow(consistency=Consistency.DURABLE), self._expected)

    def _read_base(self) -> None:
        self._compare(lance.dataset(self._uri).to_table(columns=["id", "name"]), self._expected)

    def _compare(self, rows: pa.Table, expected: ExpectedRows) -> None:
        found: dict[int, Value] = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
        if rows.num_rows != len(found):
            self.problems.append(f"{rows.num_rows - len(found)} rows are there twice")
        new = {key: found.pop(key) for key in list(found) if key >= _NEW_KEY}
        if new not in ({}, self._new_rows()):
            self.problems.append(f"rows written after the cut are {new}")
        self.problems.extend(expected.problems(found))

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
