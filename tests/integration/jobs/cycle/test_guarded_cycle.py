"""The order of I/O inside a guarded cycle, and that each commit swaps what it processed for what it made."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, vector_model_digest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle.plan import MaintainRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import CatchupSettings, CompactSettings, GcSettings, MergeSettings, Settings, WalCollection
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.garbage import OLD_S, later
from testkit.tables.people import make_people_table, people, reopened, with_clock

SETTINGS = Settings(
    compact=CompactSettings(min_fragments=2, retention_s=3600, keep_versions=1),
    catchup=CatchupSettings(),
    gc=GcSettings(grace_s=0, collect_wal=WalCollection.ALL),
)
DELETIONS = ("delete", "delete_directory")


class Log:
    """Every call of our store with the number of table versions made before it."""

    def __init__(self, table: BaseTable) -> None:
        self.store = FaultyStore(table.store)
        self.lines: list[tuple[str, str, int]] = []
        self._versions = Path(table.uri, "_versions")
        self.store.add(Rule(self._note, Moment.BEFORE, times=None))

    def _note(self, call: Call) -> None:
        newest = min(path.name for path in self._versions.glob("*.manifest"))  # Names count down.
        self.lines.append((call.operation, call.path, 2**64 - 1 - int(newest.split(".")[0])))

    def where(self, *operations: str, part: str) -> list[int]:
        """Positions of calls of these methods on paths that contain a text."""
        return [at for at, line in enumerate(self.lines) if line[0] in operations and part in line[1]]

    def version_at(self, position: int) -> int:
        return self.lines[position][2]


def is_region_data(path: str) -> bool:
    return "/wal/" in path or "_gen_" in path


@pytest.mark.req("LEASE-20", "LEASE-34", "LEASE-36")
def test_cycle_takes_the_lease_reads_works_swaps_and_deletes_in_this_order(tmp_path: Path) -> None:
    """Centroids are trained before MemWAL is enabled, so train and assign use those that are there."""
    uri = str(tmp_path / "t")
    table = make_articles_table(uri, rows=300, kinds=("BTREE", "IVF_PQ"))
    model = vector_model_digest(table, table.state().version, "vec_idx")
    with TableWriter.open(table) as writer:
        writer.put(articles(290, 60, name="new"))
        writer.delete(pa.table({"id": list(range(20))}))
        writer.flush()
    (deleted, cycles) = (False, 0)
    while not deleted:
        log = Log(table)
        admin = Table(OpenTable.of(with_clock(reopened(table, log.store, SETTINGS), later(OLD_S))))
        report = admin.run(MaintainRequest(delete=True, remove_versions=True))
        assert report.outcome in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
        if not cycles:
            _merges_under_its_lease(log)
        deletions = [at for at in log.where(*DELETIONS, part="") if is_region_data(log.lines[at][1])]
        deleted = bool(deletions)
        if deleted:
            _deletes_last(log, deletions)
        cycles += 1
        assert cycles < 5

    ids = table.dataset().to_table(columns=["id"]).column("id").to_pylist()
    assert sorted(ids) == list(range(20, 350))
    assert vector_model_digest(table, table.state().version, "vec_idx") == model
    assert not any(Path(uri, "_mem_wal").glob("*/*_gen_*"))


def _merges_under_its_lease(log: Log) -> None:
    leases = log.where("put_if_absent", part="_leases/merge/")
    taken, given_back = leases[0], leases[-1]
    before = max(log.where("put_if_absent", part="_leases/flush/"), default=0)
    manifests = [at for at, line in enumerate(log.lines) if "/manifest" in line[1] and before < at < given_back]
    assert taken < manifests[0], "regions are read under the lease"
    assert log.version_at(given_back) > log.version_at(taken), "the commit comes before the lease is given back"
    checked = [at for at in log.where("get", "head", part="_leases/merge/") if taken < at < given_back]
    bumps = [at for at, (one, two) in enumerate(pairwise(log.lines[: given_back + 1]), 1) if one[2] != two[2]]
    assert checked, "the token is looked at"
    assert min(checked) < min(bumps), "the token is looked at before the commit"


def _deletes_last(log: Log, deletions: list[int]) -> None:
    last = max(line[2] for line in log.lines)
    assert {log.version_at(at) for at in deletions} == {last}, "no commit of the base table follows a deletion"
    held = log.where("put_if_absent", part="_leases/gc/")
    assert held[0] < deletions[0] < deletions[-1] < held[-1]
    directories = [at for at in deletions if "_gen_" in log.lines[at][1]]
    entries = [at for at in deletions if "/wal/" in log.lines[at][1]]
    drained = [at for at in log.where("put_if_absent", part="/manifest/") if held[0] < at < held[-1]]
    assert drained, "records go by compare-and-swap"
    assert max(drained) < min(directories), "before what they name"
    assert max(directories) < min(entries), "and WAL entries go last"


@pytest.mark.req("LEASE-35")
@pytest.mark.parametrize("deletes", [False, True], ids=["joined", "in units"])
def test_every_version_has_the_rows_of_a_generation_or_owes_them_never_both_or_neither(
    tmp_path: Path, deletes: bool
) -> None:
    """The new reference, rows in the base table, and the end of the processed one, its progress, are one commit."""
    table = make_people_table(str(tmp_path / "t"), rows=people(0), buckets=1)
    for generation in range(1, 5):
        with TableWriter.open(table) as writer:
            writer.put(people(100 * generation, 100 * generation + 1))
            if deletes and generation > 1:
                writer.delete(pa.table({"id": [100 * (generation - 1)]}))
            writer.flush()
    settings = Settings(merge=MergeSettings(max_generations=1))
    report = Table.open(table.uri, settings=settings).run(MergeRequest())
    assert report.generations == 4
    assert not any(commit.place.on_executors for commit in report.commits)
    assert report.strategy.joined is not deletes
    (region,) = table.state().require_details().merged_generations

    seen = set()
    for version in range(2, table.state().version + 1):
        merged = table.state(version).require_details().merged_generation(region)
        ids = table.dataset(version).to_table(columns=["id"]).column("id").to_pylist()
        seen.add(merged)
        assert sorted(ids) == sorted(_expected(merged, with_deletes=deletes)), version
    assert seen == set(range(5))


def _expected(merged: int, *, with_deletes: bool) -> list[int]:
    """Ids of the base table once so many generations are merged: each deletes the first row of the one before."""
    rows = [0, *(100 * generation + each for generation in range(1, merged + 1) for each in (0, 1))]
    return [row for row in rows if not (with_deletes and row % 100 == 0 and 0 < row < 100 * merged)]
