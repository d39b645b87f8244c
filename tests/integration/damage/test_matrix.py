"""Every kind of file of one region, damaged in every way: right rows, or an error that names the region and the file.

The other region goes on: it is merged, looked up and collected.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from memwal_core.errors import DamagedError, MemwalError
from memwal_core.format.paths import region_directory
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.region.census import Census
from memwal_core.table import Table
from testkit.faults.file_damage import DAMAGES, damage_file
from testkit.tables.damaged import DIRECTORIES, FILES, MAKERS, Victim, looked_up, make_victim
from testkit.tables.readable import as_model

_COMMON = "zeroed"
"""What the normal suite does to every kind of file, beside removing directories."""

_IN_ALL_WAYS = {"data file"}
"""Kinds of files that the normal suite damages in every way."""


_UNKNOWABLE = {(maker, "data file", "swapped") for maker in ("pylance", "lancedb")}
"""Files of another flushed MemTable with the same size and rows; what is not of the same size is refused."""


def _cases() -> Iterator[object]:
    for maker in MAKERS:
        for kind in FILES:
            for damage in DAMAGES:
                if kind in DIRECTORIES and damage != "deleted":
                    continue
                is_normal = maker == "lance" and (damage == _COMMON or kind in _IN_ALL_WAYS | DIRECTORIES)
                marks = () if is_normal else (pytest.mark.long,)
                yield pytest.param(maker, kind, damage, marks=marks, id=f"{maker}-{kind}-{damage}".replace(" ", "_"))


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Victim]:
    made: dict[str, Victim] = {}

    def victim(maker: str) -> Victim:
        if maker not in made:
            made[maker] = make_victim(str(tmp_path_factory.mktemp(maker) / "people.lance"), maker)
        made[maker].restore()
        return made[maker]

    return victim


def _deal(victim: Victim, kind: str, damage: str) -> Path:
    """Damage a file of the region that is to be hurt; skip what the table does not have."""
    path = victim.file(kind)
    if path is None:
        pytest.skip(f"no {kind} in this table")
    if kind in DIRECTORIES:
        shutil.rmtree(path)
    else:
        damage_file(path, damage, victim.file(kind, victim.healthy))
    return path


def _right_or_named(
    victim: Victim, read: Callable[[], Mapping[int, str]], truth: Mapping[int, str]
) -> MemwalError | None:
    """Return the error of a read; without one its rows must be right."""
    refused: MemwalError | None = None
    found: Mapping[int, str] = truth
    try:
        found = read()
    except MemwalError as error:
        refused = error
    assert found == truth
    if refused is not None:
        assert isinstance(refused, DamagedError)
        assert refused.exit_code == 5
        assert refused.facts["region_id"] == str(victim.hurt.region_id)
        assert region_directory(victim.hurt.region_id) in str(refused.facts["path"])
        assert refused.facts["cause"]
    return refused


@pytest.mark.parametrize(("maker", "kind", "damage"), list(_cases()))
def test_damage_costs_one_region_and_no_row_silently(
    victims: Callable[[str], Victim], maker: str, kind: str, damage: str
) -> None:
    if (maker, kind, damage) in _UNKNOWABLE:
        pytest.skip("nothing in the files of these writers says to which flushed MemTable they belong")
    victim = victims(maker)
    _deal(victim, kind, damage)
    table = Table.open(victim.uri)
    healthy = {key: victim.flushed[key] for key in victim.healthy_keys if key in victim.flushed}
    hurt = {key: victim.flushed[key] for key in victim.hurt_keys if key in victim.flushed}

    error = _right_or_named(victim, lambda: as_model(table.to_arrow()), victim.flushed)
    _right_or_named(victim, lambda: as_model(table.to_arrow(consistency="durable")), victim.durable)
    refused = _right_or_named(victim, lambda: looked_up(table, frozenset(healthy)), healthy)
    assert maker != "lance" or refused is None, "keys of a healthy region of ours are always found"
    _right_or_named(victim, lambda: looked_up(table, frozenset(hurt)), hurt)

    status = table.status()
    known = {each.region_id for each in status.regions} | status.damaged.keys()
    assert victim.healthy.region_id in {each.region_id for each in status.regions}
    assert victim.hurt.region_id in known

    planned = table.run(GcRequest(dry_run=True)).plan
    assert error is None or not [each for each in planned.free if each.region_id == victim.hurt.region_id]
    assert table.run(SnapshotRequest()).outcome is not JobOutcome.BLOCKED

    report = table.run(MergeRequest())
    verdicts = {each.region_id: each for each in report.regions}
    assert verdicts[victim.healthy.region_id].verdict is Verdict.COMPLETE
    merged = as_model(table.base.dataset().to_table())
    assert {key: merged[key] for key in healthy} == healthy
    parked = verdicts.get(victim.hurt.region_id)
    if parked is None or parked.verdict is not Verdict.COMPLETE:
        assert report.outcome is JobOutcome.PARTIAL
        assert parked is not None
        assert parked.verdict.is_damage
        assert str(victim.hurt.region_id) in parked.evidence
    else:
        assert {key: merged.get(key) for key in hurt} == hurt
    again = table.run(MergeRequest())
    assert again.commits == ()
    _right_or_named(victim, lambda: as_model(table.to_arrow()), victim.flushed)

    assert table.run(CatchupRequest()).outcome is not JobOutcome.BLOCKED
    assert table.run(CompactRequest()).outcome is not JobOutcome.BLOCKED
    assert table.run(GcRequest()).outcome is not JobOutcome.BLOCKED
    _right_or_named(victim, lambda: as_model(table.to_arrow()), victim.flushed)


def test_matrix_notices_a_reader_that_leaves_out_a_damaged_region(
    victims: Callable[[str], Victim], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: without its knowledge of damaged regions a reader returns fewer rows."""
    victim = victims("lance")
    _deal(victim, "region", "deleted")
    monkeypatch.setattr(Census, "with_known", lambda self, *_: Census(self.manifests))
    table = Table.open(victim.uri)
    with pytest.raises(AssertionError):
        _right_or_named(victim, lambda: as_model(table.to_arrow()), victim.flushed)
