"""A run ends although somebody goes on writing."""

from __future__ import annotations

from pathlib import Path

import lance

from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

MOST = 20
"""Generations after which the writer stops, so that a run without an end fails and does not hang."""


class WritesMeanwhile:
    """Flushes one more generation in each pass."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self.flushed = 0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        planned = stage == "committed" and total is not None and done < total
        if planned and self.flushed < MOST:
            self.flushed += 1
            self._writer.put(people(100 + self.flushed))
            self._writer.flush()


def test_run_ends_beside_a_writer_that_flushes_as_fast_as_it_merges(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1, 2), buckets=1)
    admin = Table.open(uri)
    with TableWriter.open(table) as writer:
        writer.put(people(2, 3, name="new"))
        writer.flush()
        meanwhile = WritesMeanwhile(writer)
        first = admin.run(MergeRequest(), progress=meanwhile)

        assert meanwhile.flushed == 1
        assert (first.outcome, first.generations, len(first.commits)) == (JobOutcome.DONE, 1, 1)
        (region,) = first.regions
        assert (region.verdict, region.waiting) == (Verdict.NEXT_RUN, 1)
        assert "generations 2 to 2 were flushed after this run began" in region.evidence
        assert lance.dataset(uri).count_rows() == 3

        assert admin.run(MergeRequest()).generations == 1
        assert lance.dataset(uri).count_rows() == 4
