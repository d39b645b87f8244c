"""After any history, each job does on executors what it does in one process: rows, MemWAL index, indexes and files."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable, Sources, list_fragments, read_coverage, read_snapshot
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.jobs.catalog import parse_request
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.job import JobReport
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import CompactSettings, GcSettings, MergeSettings, Settings, WalCollection
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.pickling_executors import PicklingExecutors
from testkit.rng import seeded_rng
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import OLD_S, drop_old_versions, later
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.long, pytest.mark.req("O10")]

JOBS = ("merge", "catchup", "compact", "snapshot", "gc", "verify")
KEYS = st.lists(st.integers(0, 59), min_size=1, max_size=12, unique=True).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.sampled_from(["flush", "flush", "drop versions", "tag"]), st.just(())),
    st.tuples(st.sampled_from(JOBS), st.just(())),
    st.tuples(st.sampled_from(JOBS), st.just(())),
)
SETTINGS = Settings(
    gc=GcSettings(collect_wal=WalCollection.ALL, grace_s=0, open_writer_s=0, manifest_retention=2),
    compact=CompactSettings(min_fragments=2, target_rows=40),
    merge=MergeSettings(unit_bytes=1),
)
MADE_UP = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4}){0,3}(?:-[0-9a-f]{12})?")
"""Names that each run makes up."""


class Twins:
    """A table with a history, whose jobs are all done in both places."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root / "t")
        self.table = make_people_table(self.uri, rows=people(*range(0, 60, 2)), buckets=4)
        self.table.dataset().create_scalar_index("score", "BTREE", name="score_idx")
        self.table.dataset().create_scalar_index("name", "INVERTED", name="name_idx")
        self.writer = TableWriter.open(self.table)
        self.number = 0
        self.done: set[str] = set()

    def step(self, name: str, keys: tuple[int, ...], times: int) -> None:
        self.number += 1
        if name == "put":
            self.writer.put(people(*keys, name=f"v{self.number}"))
        elif name == "delete":
            self.writer.delete(people(*keys).select(["id"]))
        elif name == "flush":
            self.writer.flush()
        elif name == "drop versions":
            drop_old_versions(self.uri)
        elif name == "tag":
            self.table.dataset().tags.create(f"t{self.number}", self.table.state().version)
        else:
            self._compare(name, times)

    def close(self) -> None:
        self.writer.close()

    def _compare(self, job: str, times: int) -> None:
        """Do a job on executors, take it back, and do it here; a table that is copied elsewhere would be frozen."""
        before, clock = self.root / f"before{self.number}", later(OLD_S)
        shutil.copytree(self.uri, before)
        admin = _opened(self.uri, clock)
        on_executors = _run(admin, job, "spark", PicklingExecutors(times=times))
        found, files = _facts(self.uri), _files(self.uri)
        shutil.rmtree(self.uri)
        before.rename(self.uri)
        here = _run(_opened(self.uri, clock), job, "local", None)
        expected = _facts(self.uri)
        assert on_executors.outcome is here.outcome, (on_executors.why(), here.why())
        if here.outcome is JobOutcome.DONE:
            self.done.add(job)
        if job == "merge":  # Each unit of the work is a fragment.
            for each in (found, expected):
                each["live"] = sum(each["live"])
                each["unindexed"] = {name: count > 0 for name, count in each["unindexed"].items()}
        assert found == expected, job
        if times == 1:
            assert files == _files(self.uri), job


def _opened(uri: str, clock: Any) -> Table:
    return Table(OpenTable.of(BaseTable.open(uri, settings=SETTINGS, sources=Sources(clock, seeded_rng(1)))))


def _run(admin: Table, job: str, engine: str, executors: object | None) -> JobReport:
    asked = {"dry_run": False} if job == "gc" else {}
    report: JobReport = admin.run(parse_request(job, {**asked, "engine": engine}), executors=executors)
    return report


def _facts(uri: str) -> dict[str, Any]:
    """Return rows, MemWAL index, indexes and regions of a table."""
    table = BaseTable.open(uri)
    state = table.state()
    dataset = lance.dataset(uri)
    details = state.require_details()
    manifests = Table.open(uri).opened.manifests
    snapshot = read_snapshot(table, state)
    coverage = read_coverage(table, state.version)
    by_index = {
        "score": [dataset.to_table(columns=["id"], filter=f"score >= {low}").num_rows for low in (0, 10, 30)],
        "name": [
            sorted(dataset.scanner(full_text_query=text, columns=["id"]).to_table()["id"].to_pylist())
            for text in ("p1", "p2", "v1", "v3", "v5")
        ],
    }
    return {
        "rows": dataset.to_table().sort_by("id").to_pylist(),
        "visible": lsm_view(table),
        "live": sorted(each.physical_rows - each.deleted_rows for each in list_fragments(table, state.version)),
        "merged": details.merged_generations,
        "catch-up": details.index_catchup,
        "unindexed": {each.name: len(each.unindexed_fragments) for each in coverage.indexes},
        "by index": by_index,
        "regions": [_region(each) for each in manifests.load_many(manifests.region_ids())],
        "snapshot": None if snapshot is None else [_region(each) for each in snapshot_manifests(snapshot)],
    }


def _region(manifest: Any) -> tuple[object, ...]:
    flushed = tuple((each.generation, each.path) for each in manifest.flushed_generations)
    return manifest.region_id, manifest.writer_epoch, manifest.replay_after_wal_id, flushed


def _files(uri: str) -> Counter[str]:
    """Count the files of all regions by name, without what names are made up of."""
    root = Path(uri)
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    kept = [name for name in names if name.startswith("_mem_wal/") and not name.startswith("_mem_wal/_")]
    return Counter(MADE_UP.sub("#", name) for name in kept)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(
    derandomize=True,
    deadline=None,
    max_examples=12,
    phases=[Phase.generate],  # A smaller case is not worth the minutes that finding it takes.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=8, max_size=18), times=st.sampled_from([1, 1, 2]))
def test_job_on_executors_leaves_what_it_leaves_in_one_process(
    directory: Path, steps: list[tuple[str, tuple[int, ...]]], times: int
) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as name:
        twins = Twins(Path(name))
        try:
            # A history without one says nothing.
            for step, keys in (*steps, ("put", (1, 2, 3)), ("flush", ()), *((job, ()) for job in JOBS)):
                twins.step(step, keys, times)
            assert twins.done >= set(JOBS) - {"compact"}
        finally:
            twins.close()
