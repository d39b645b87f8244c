"""How far from the least that any implementation must do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.comparisons.writing.puts import put_data, region_writer
from bench.harness import Arm, Case, Comparison, Work
from bench.tables import MadeOnce, flush_generations, link_copy, require_equal, rows, upserts, with_regions
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import Settings, StorageSettings
from memwal_core.table import Table

FLOATS = 64
GENERATIONS = 8

_SEED = 47
_UNSYNCED = Settings(storage=StorageSettings(fsync=False))


class Waiting:
    """A base with generations waiting, and the rows that win."""

    def __init__(self, directory: Path, *, base_rows: int, generations: int, generation_rows: int) -> None:
        """Make both."""
        rng = np.random.default_rng(_SEED)
        self.uri = directory / "table"
        lance.write_dataset(rows(np.arange(base_rows), rng, floats=FLOATS), str(self.uri))
        made = [
            rows(upserts(number, generation_rows, rng, base_rows=base_rows), rng, floats=FLOATS)
            for number in range(generations)
        ]
        flush_generations(with_regions(str(self.uri), 1), made)
        everything = pa.concat_tables(made).combine_chunks()
        keys = everything.column("id").to_numpy()
        _, last = np.unique(keys[::-1], return_index=True)
        self.winners = everything.take(pa.array(np.sort(len(keys) - 1 - last)))
        self.total = base_rows + int((self.winners.column("id").to_numpy() >= base_rows).sum())


@contextmanager
def write_winners(case: Case, directory: Path) -> Iterator[Work]:
    """Write the winning rows once, from memory, as a table of their own."""
    waiting: Waiting = case.data.get(directory)
    uri = str(directory / "written")

    def work() -> None:
        lance.write_dataset(waiting.winners, uri)

    yield work
    require_equal(lance.dataset(uri).count_rows(), waiting.winners.num_rows)


@contextmanager
def merge_job(case: Case, directory: Path) -> Iterator[Work]:
    """Merge with our job, from opening the table to its report."""
    waiting: Waiting = case.data.get(directory)
    uri = str(link_copy(waiting.uri, directory / "table"))

    def work() -> None:
        Table.open(uri, settings=_UNSYNCED).run(MergeRequest())

    yield work
    require_equal(lance.dataset(uri).count_rows(), waiting.total)


@contextmanager
def synced_files(case: Case, directory: Path) -> Iterator[Work]:
    """Write the bytes of our WAL entries to plain files, each synced with its directory before the next."""
    with region_writer(case, directory, fsync=False) as put:
        put()
        entries = [path.read_bytes() for path in sorted(directory.glob("table/_mem_wal/*/wal/*.lance"))]
    # The fence that a claim leaves has no rows, and a successor has left one, too.
    entries = sorted(entries, key=len)[-len(case.data.batches) :]
    target = directory / "files"
    target.mkdir()

    def work() -> None:
        for number, entry in enumerate(entries):
            _write_synced(target / str(number), entry)

    yield work
    require_equal(len(list(target.iterdir())), len(case.data.batches))


def _write_synced(path: Path, data: bytes) -> None:
    for opened, flags in ((path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), (path.parent, os.O_RDONLY)):
        descriptor = os.open(opened, flags, 0o644)
        try:
            if flags != os.O_RDONLY:
                os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_cases(full: bool) -> Sequence[Case]:
    counts = {100: 100, 1_000: 50, 10_000: 10} if full else {100: 30, 1_000: 20}
    return [Case(f"{rows:,} rows", batches, put_data(rows, batches)) for rows, batches in counts.items()]


def _cases(full: bool) -> Sequence[Case]:
    sizes = ((200_000, 10_000), (1_000_000, 10_000), (1_000_000, 50_000)) if full else ((200_000, 10_000),)
    return [
        Case(
            f"{GENERATIONS} x {generation_rows:,} rows into {base_rows:,}",
            1,
            MadeOnce(partial(Waiting, base_rows=base_rows, generations=GENERATIONS, generation_rows=generation_rows)),
        )
        for base_rows, generation_rows in sizes
    ]


MERGE_FLOOR = Comparison(
    name="merge-floor",
    question=f"merge {GENERATIONS} generations, against writing the same winning rows once: {FLOATS} floats a row",
    operation="merge",
    arms=(
        Arm(
            "write_dataset", "the winning rows, in memory already, written as a new table; finds nothing", write_winners
        ),
        Arm("memwal", "the merge job: reads, de-duplicates, finds what is superseded, commits", merge_job),
    ),
    cases=_cases,
)

WAL_FLOOR = Comparison(
    name="wal-floor",
    question="one durable put after the other, against plain files of the same bytes: int64 key, text, 128 floats",
    operation="put",
    arms=(
        Arm("fsynced file", "the WAL entry's bytes written, file and directory synced; encodes nothing", synced_files),
        Arm(
            "memwal", "RegionWriter as it is by default: file and directory synced", partial(region_writer, fsync=True)
        ),
    ),
    cases=_put_cases,
)
