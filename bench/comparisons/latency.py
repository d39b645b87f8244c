"""Merges where each request takes long, as on a distant object store: what counts is how many follow one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from bench.comparisons.writing.puts import LATENCY_S
from bench.harness import Arm, Case, Comparison, Measure, Sample, Work
from bench.tables import UNSYNCED, flush_generations, require_equal, with_regions
from memwal_core.format.paths import generation_path
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.text import show_count
from testkit.faults.faulty_proxy import FaultyProxy, faulty_proxy
from testkit.s3_server import s3_server

FRAGMENTS = 64
_BASE_ROWS = 128_000
_GENERATIONS = 8
_GENERATION_ROWS = 1_000
_SEED = 59
_REQUESTS = Measure("requests", "requests")


@dataclass(frozen=True, slots=True)
class _Distant:
    """A table with rows that wait, behind a proxy that can be slow.

    Attributes:
        uri: Where it is.
        options: With which one reaches it through the proxy.
        after: How many rows the base has once what waits is merged.
    """

    uri: str
    options: Mapping[str, str]
    proxy: FaultyProxy
    after: int

    def begin(self) -> None:
        """Count requests from now on, and let each take long."""
        self.proxy.forget()
        self.proxy.delay(LATENCY_S)

    def counted(self) -> Sample:
        """Return how many requests were made."""
        return {_REQUESTS.name: float(len(self.proxy.requests()))}

    def require_merged(self) -> None:
        """Check that everything is merged."""
        self.proxy.forget()
        require_equal(lance.dataset(self.uri, storage_options=dict(self.options)).count_rows(), self.after)


@contextmanager
def _distant(fragments: int) -> Iterator[_Distant]:
    rng = np.random.default_rng(_SEED)
    written = rng.choice(_BASE_ROWS + _GENERATION_ROWS, _GENERATIONS * _GENERATION_ROWS, replace=False)
    first, waiting = [_rows(written[:1])], [_rows(each) for each in np.array_split(written, _GENERATIONS)]
    with s3_server() as server, faulty_proxy(server.endpoint) as proxy:
        uri, direct = server.uri("bucket/table.lance"), dict(server.storage_options)
        base = _rows(rng.permutation(_BASE_ROWS))
        lance.write_dataset(base, uri, max_rows_per_file=_BASE_ROWS // fragments, storage_options=direct)
        table = with_regions(uri, 1, storage_options=direct)
        flush_generations(table, first)
        Table.open(uri, storage_options=direct).run(MergeRequest())  # The first one finds no record, and asks more.
        flush_generations(table, waiting)
        through = {name: proxy.endpoint if value == server.endpoint else value for name, value in direct.items()}
        yield _Distant(uri, through, proxy, _BASE_ROWS + int((written >= _BASE_ROWS).sum()))


def _rows(keys: np.ndarray) -> pa.Table:
    key = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    return pa.table([pa.array(keys), pa.array(keys)], schema=pa.schema([key, pa.field("number", pa.int64())]))


@contextmanager
def _merge_insert(case: Case, _directory: Path) -> Iterator[Work]:
    """Merge all generations, whose keys are distinct, with one marked merge_insert; they are read side by side."""
    with _distant(case.data) as distant, ThreadPoolExecutor(_GENERATIONS) as pool:
        options = dict(distant.options)
        manifests = Table.open(distant.uri, storage_options=options).opened.manifests
        (region,) = manifests.load_many(manifests.region_ids())
        flushed = region.flushed_generations[-_GENERATIONS:]
        uris = [f"{distant.uri}/{generation_path(region.region_id, each.path)}" for each in flushed]

        def read(uri: str) -> pa.Table:
            return lance.dataset(uri, storage_options=options).to_table(columns=["id", "number"])

        def work() -> Sample:
            target = lance.dataset(distant.uri, storage_options=options)
            rows = pa.concat_tables(pool.map(read, uris))
            merge = target.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().use_index(False)
            mark = CompactedSsTable(str(region.region_id), flushed[-1].generation)
            merge.mark_sstables_as_compacted([mark]).execute(rows)
            return distant.counted()

        distant.begin()
        yield work
        distant.require_merged()


@contextmanager
def _merge_job(case: Case, _directory: Path) -> Iterator[Work]:
    with _distant(case.data) as distant:

        def work() -> Sample:
            Table.open(distant.uri, storage_options=distant.options, settings=UNSYNCED).run(MergeRequest())
            return distant.counted()

        distant.begin()
        yield work
        distant.require_merged()


def _cases(full: bool) -> Sequence[Case]:
    counts = (1, FRAGMENTS) if full else (4,)
    return [Case(show_count(count, "fragment"), 1, count, size=float(count)) for count in counts]


MERGE_LATENCY = Comparison(
    name="merge-latency",
    question=f"merge {_GENERATIONS} generations on an S3 server that takes {LATENCY_S * 1000:.0f} ms for each request",
    operation="merge",
    arms=(
        Arm("merge_insert", "one marked merge_insert of all rows, use_index(False); generations read side by side",
            _merge_insert),
        Arm("memwal", "the merge job as it is by default, table opening and plan included", _merge_job),
    ),
    cases=_cases,
    rounds=3,
    also=(_REQUESTS,),
)  # fmt: skip
