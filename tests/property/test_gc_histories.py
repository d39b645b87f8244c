"""After any interleaving of work, collection and crashes, every row is readable at every retained version."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memwal_core.base_table import retained_versions
from memwal_core.format.memwal_index.rules import caught_up_generation
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.items import Gate
from memwal_core.jobs.gc.kinds import flushed
from memwal_core.jobs.gc.kinds.flushed import gate_of
from memwal_core.jobs.gc.run import collect_garbage
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import GcSettings, WalCollection
from memwal_core.table import Table
from memwal_core.writer import RegionWriter, TableWriter
from testkit.faults.failpoints import SimulatedCrash
from testkit.faults.faulty_store import WRITES, Call, FaultyStore, Moment
from testkit.faults.faulty_store import Rule as Fault
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import gc_admin, only_region
from testkit.tables.people import make_people_table, people

KEYS = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.sampled_from(["flush", "flush", "merge", "merge", "collect", "collect"]), st.just(0)),
    st.tuples(st.sampled_from(["tag", "untag", "drop versions", "drop versions", "index", "catch up"]), st.just(0)),
    st.tuples(st.just("crash in collection"), st.integers(1, 8)),
    st.tuples(st.just("take over"), st.just(0)),
)
INDEX = "by_score"


class Patient:
    """A real table, its writer, and what it must show."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.table = make_people_table(uri, rows=people(0, 1), buckets=1)
        with TableWriter.open(self.table) as writer:
            writer.put(people(0, name="first"))
        self.model = {0: "first", 1: "p1"}
        self.admin = gc_admin(uri)
        self.region = only_region(self.admin)
        self.writer = RegionWriter.open(self.table, self.region)
        self.count = self.tags = 0

    def step(self, name: str, argument: object) -> None:
        getattr(self, "_" + name.replace(" ", "_"))(argument)

    def check(self) -> None:
        for version in retained_versions(self.table, 1):
            if version.enabled:
                assert lsm_view(self.table, version.version) == self.model, version.label
        self._check_index_gap()

    def _check_index_gap(self) -> None:
        """Every generation that the index lacks is still recorded, for queries through the index."""
        state = self.table.state()
        if INDEX not in [index.name for index in self.table.indexes(state.version)]:
            return
        assert state.details is not None
        covered = caught_up_generation(state.details, [INDEX], self.region)
        recorded = {each.generation for each in self.admin.opened.manifests.load(self.region).flushed_generations}
        current = self.admin.opened.manifests.load(self.region).current_generation
        drained_before = self.drained_before_index
        assert set(range(max(covered, drained_before) + 1, current)) <= recorded

    drained_before_index = 0

    def _put(self, keys: object) -> None:
        self.count += 1
        assert isinstance(keys, tuple)
        self.writer.put(people(*keys, name=f"v{self.count}"))
        self.model.update(dict.fromkeys(keys, f"v{self.count}"))

    def _delete(self, keys: object) -> None:
        assert isinstance(keys, tuple)
        self.writer.delete(people(*keys).select(["id"]))
        for key in keys:
            self.model.pop(key, None)

    def _flush(self, _: object) -> None:
        self.writer.flush()

    def _merge(self, _: object) -> None:
        self.admin.run(MergeRequest())

    def _take_over(self, _: object) -> None:
        self.writer = RegionWriter.open(self.table, self.region)

    def _tag(self, _: object) -> None:
        dataset = lance.dataset(self.uri)
        if dataset.version > 1:
            self.tags += 1
            dataset.tags.create(f"t{self.tags:02}", dataset.version)

    def _untag(self, _: object) -> None:
        dataset = lance.dataset(self.uri)
        for name in sorted(dataset.tags.list())[:1]:
            dataset.tags.delete(name)

    def _drop_versions(self, _: object) -> None:
        lance.dataset(self.uri).cleanup_old_versions(
            older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
        )

    def _index(self, _: object) -> None:
        manifest = self.admin.opened.manifests.load(self.region)
        oldest = min((each.generation for each in manifest.flushed_generations), default=manifest.current_generation)
        if INDEX not in [index.name for index in self.table.indexes()]:
            self.drained_before_index = oldest - 1
            lance.dataset(self.uri).create_scalar_index("score", "BTREE", name=INDEX)

    def _catch_up(self, _: object) -> None:
        lance.dataset(self.uri).optimize.optimize_indices()

    def _collect(self, _: object) -> None:
        report = collect_garbage(self.context(FaultyStore(self.table.store)))
        assert report.failures == ()
        assert not report.plan.freezes

    def _crash_in_collection(self, nth: object) -> None:
        def die(call: Call) -> None:
            raise SimulatedCrash(call.path)

        assert isinstance(nth, int)
        store = FaultyStore(self.table.store)
        store.add(Fault(die, Moment.AFTER if nth % 2 else Moment.BEFORE, WRITES, nth=nth, times=None))
        try:
            collect_garbage(self.context(store))
        except SimulatedCrash:
            return

    def context(self, store: FaultyStore) -> JobContext:
        chosen = GcSettings(collect_wal=WalCollection.ALL, grace_s=0, manifest_retention=2, concurrency=1)
        return JobContext(gc_admin(self.uri, settings=chosen, store=store).opened)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.req("GC-29", "GC-17", "GC-20")
@settings(
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=8, max_size=20))
def test_every_acknowledged_row_is_readable_at_every_retained_version(directory, steps):
    with tempfile.TemporaryDirectory(dir=directory) as name:
        table = Patient(f"{name}/t")
        for step in steps:
            table.step(*step)
            if step[0] in ("collect", "crash in collection"):
                table.check()
        table.step("collect", 0)
        table.check()


@pytest.mark.req("GC-29")
def test_a_long_history_ends_with_an_almost_empty_region(tmp_path):
    table = Patient(str(tmp_path / "t"))
    for name in ("put", "flush", "merge", "index", "put", "delete", "flush", "merge", "tag", "collect"):
        table.step(name, (3, 4))
        table.check()
    for name in ("untag", "catch up", "drop versions"):
        table.step(name, 0)
    table.step("crash in collection", 3)
    table.step("collect", 0)
    table.check()

    objects = [info.path for info in table.table.store.list_objects(f"_mem_wal/{table.region}")]
    assert len([path for path in objects if "/wal/" in path]) == 1
    assert not [path for path in objects if "_gen_" in path]
    assert Table.open(table.uri).run(MergeRequest()).generations == 0


@pytest.mark.parametrize("rule", [Gate.RETAINED_VERSION, Gate.INDEX_BEHIND, Gate.UNMERGED])
def test_without_a_rule_the_same_check_finds_the_loss(tmp_path, monkeypatch, rule):
    """Negative control: each gate on its own keeps something that the check looks for."""

    def weaker(base, region_id, generation):
        found = gate_of(base, region_id, generation)
        return None if found is not None and found[0] is rule else found

    monkeypatch.setattr(flushed, "gate_of", weaker)
    table = Patient(str(tmp_path / "t"))
    history = {
        Gate.RETAINED_VERSION: ("put", "flush", "tag", "merge", "drop versions"),
        Gate.INDEX_BEHIND: ("index", "put", "flush", "merge", "drop versions"),
        Gate.UNMERGED: ("put", "flush"),
    }[rule]
    for name in history:
        table.step(name, (3, 4))
    table.check()

    collect_garbage(table.context(FaultyStore(table.table.store)))

    with pytest.raises(AssertionError):
        table.check()
