"""Merging flushed MemTables into the base table: our job against Lance's merge-insert."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lance
from lance.mem_wal import CompactedSsTable

from bench.comparisons.floor import FLOATS, Waiting, merge_job
from bench.harness import Arm, Case, Comparison, Work
from bench.tables import MadeOnce, link_copy, require_equal, schema
from memwal_core.format.paths import generation_path
from memwal_core.table import Table

GENERATION_ROWS = 10_000


@contextmanager
def merge_insert_per_generation(case: Case, directory: Path) -> Iterator[Work]:
    """Merge each generation with one marked merge_insert, in its fastest form."""
    waiting: Waiting = case.data.get(directory)
    uri = str(link_copy(waiting.uri, directory / "table"))
    admin = Table.open(uri)
    (region,) = admin.opened.manifests.load_many(admin.opened.manifests.region_ids())

    def work() -> None:
        for flushed in region.flushed_generations:
            address = os.path.join(uri, generation_path(region.region_id, flushed.path))
            rows = lance.dataset(address).to_table(columns=schema(FLOATS).names)
            merge = lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            mark = CompactedSsTable(str(region.region_id), flushed.generation)
            merge.use_index(False).mark_sstables_as_compacted([mark]).execute(rows)

    yield work
    require_equal(lance.dataset(uri).count_rows(), waiting.total)


def _cases(full: bool) -> Sequence[Case]:
    sizes = ((4, 200_000), (16, 200_000), (64, 200_000), (16, 1_000_000)) if full else ((16, 200_000),)
    return [
        Case(
            f"{count} generations into {base_rows:,}",
            count,
            MadeOnce(partial(Waiting, base_rows=base_rows, generations=count, generation_rows=GENERATION_ROWS)),
        )
        for count, base_rows in sizes
    ]


MERGES = Comparison(
    name="merge",
    question=f"merge generations of {GENERATION_ROWS:,} rows x {FLOATS} floats, half of them updates",
    operation="generation",
    arms=(
        Arm(
            "merge_insert",
            "one marked merge_insert per generation, use_index(False), keys already unique",
            merge_insert_per_generation,
        ),
        Arm("memwal", "the merge job as it is by default, table opening and plan included", merge_job),
    ),
    cases=_cases,
    rounds=5,
)
