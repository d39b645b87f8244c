"""Honest writers and mergers between two reads of one run: no order of their steps may freeze a table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from memwal_core.coordination.freeze.watch import HistoryWatch
from memwal_core.errors import FrozenError
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.table import Table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)


class Interleaved:
    """A run whose reads stand between the steps of others."""

    def __init__(self, uri: str) -> None:
        table = Table.open(uri)
        self.watch = HistoryWatch(table.opened.base, table.opened.manifests, table.opened.freezes, "job")
        self.compared = self.watch.begin()
        self.uri = uri

    def reads_table(self) -> None:
        self.compared.base.state()

    def reads_regions(self) -> None:
        self.compared.manifests.load(REGION)

    def others_flush_and_merge(self) -> None:
        table = Table.open(self.uri).base
        generation = table.state().require_details().merged_generation(REGION) + 1
        write_native_generations(self.uri, REGION, [[Put(people(generation))]])
        merge_natively(table, people(generation), {REGION: generation})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Return a table with a record: one generation is flushed and merged, and a run has seen it."""
    uri = str(tmp_path / "t")
    table = make_people_table(uri)
    write_native_generations(uri, REGION, [[Put(people(1))]])
    merge_natively(table, people(1), {REGION: 1})
    Table.open(uri).run(SnapshotRequest())
    return uri


Step = Callable[[Interleaved], None]
ORDERS = list(product((Interleaved.reads_table, Interleaved.reads_regions), repeat=3))


@pytest.mark.parametrize("reads", ORDERS, ids=lambda reads: "-".join(each.__name__ for each in reads))
def test_others_that_flush_and_merge_before_each_read_freeze_nothing(uri: str, reads: tuple[Step, ...]) -> None:
    run = Interleaved(uri)
    for read in reads:
        run.others_flush_and_merge()
        read(run)
    run.watch.read_again()
    run.watch.remember()

    assert Table.open(uri).opened.freezes.active() == ()


def test_regions_read_before_a_merge_and_the_table_after_it_are_looked_at_again(uri: str) -> None:
    """One flush and merge between the reads: the table read is ahead of the region that was read."""
    run = Interleaved(uri)
    run.reads_regions()
    run.others_flush_and_merge()
    run.reads_table()

    assert Table.open(uri).opened.freezes.active() == ()


def test_progress_without_generations_is_still_found_by_the_second_look(uri: str) -> None:
    run = Interleaved(uri)
    run.reads_regions()
    merge_natively(Table.open(uri).base, people(2), {REGION: 2})

    with pytest.raises(FrozenError) as caught:
        run.reads_table()
    assert caught.value.facts["causes"] == ["progress-ahead"]
