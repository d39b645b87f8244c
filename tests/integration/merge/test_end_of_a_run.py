"""A run ends although somebody goes on writing."""

from __future__ import annotations

from pathlib import Path

import lance

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.maintenance.merge import MergePlan, Verdict
from memwal_core.maintenance.merge.run import Silent
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter

MOST = 20
"""Generations after which the writer stops, so that a run without an end fails and does not hang."""


class WritesMeanwhile(Silent):
    """Flushes one more generation in each pass."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self.flushed = 0

    def planned(self, plan: MergePlan) -> None:
        if self.flushed < MOST:
            self.flushed += 1
            self._writer.put(people(100 + self.flushed))
            self._writer.flush()


def test_run_ends_beside_a_writer_that_flushes_as_fast_as_it_merges(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1, 2), buckets=1)
    admin = TableAdmin.open(uri)
    with TableWriter.open(table) as writer:
        writer.put(people(2, 3, name="new"))
        writer.flush()
        meanwhile = WritesMeanwhile(writer)
        first = admin.merge(MergeRequest(progress=meanwhile))

        assert meanwhile.flushed == 1
        assert (first.outcome, first.generations, len(first.commits)) == (JobOutcome.DONE, 1, 1)
        (region,) = first.regions
        assert (region.verdict, region.waiting) == (Verdict.NEXT_RUN, 1)
        assert "generations 2 to 2 were flushed after this run had begun" in region.evidence
        assert lance.dataset(uri).count_rows() == 3

        assert admin.merge().generations == 1
        assert lance.dataset(uri).count_rows() == 4
