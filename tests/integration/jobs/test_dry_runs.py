"""A dry run shows exactly what a run does: every job, on the same table, at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memwal_core.jobs.catalog import REQUESTS, parse_request
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import DAY_S, CompactSettings, GcSettings, Settings, WalCollection, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.rng import seeded_rng
from testkit.tables.garbage import later, write_generations
from testkit.tables.people import make_people_table, people

SETTINGS = Settings(
    compact=CompactSettings(min_fragments=2, retention_s=3600, keep_versions=1),
    gc=GcSettings(grace_s=0, collect_wal=WalCollection.ALL, register_min_age_s=DAY_S),
)
Told = Mapping[str, Any]
Opened = Callable[[str], Table]

BEFORE = {
    "catchup": (MergeRequest(),),
    "verify": (MergeRequest(),),
    "compact": (MergeRequest(), CatchupRequest()),
    "snapshot": (MergeRequest(), CatchupRequest()),
    "gc": (MergeRequest(), CatchupRequest(), CompactRequest(remove_versions=True), SnapshotRequest()),
}
"""What gives a job something to do."""


def _plan(told: Told) -> object:
    return told["plan"]


def _merged(told: Told) -> object:
    done = told["commits"] or [{"marks": told["plan"]["marks"]}]
    return {
        "marks": {region: through for each in done for region, through in each["marks"].items()},
        "generations": told["generations"] or told["plan"]["generations"],
        "bytes": told["bytes_planned"] or told["plan"]["bytes"],
    }


def _collected(told: Told) -> object:
    """Return items, objects and bytes of each kind; a drained MemTable's directory goes in the same run."""
    found = told.get("done") or told["plan"]["free"]
    return {kind: each for kind, each in found.items() if kind != "directory"}


def _copied(told: Told) -> object:
    """Return what is in a copy, which a run also proves."""
    assert told["proof"] in ({}, {**told["proof"], "files": told["files"], "wal_entries": told["wal_entries"]})
    return [told[name] for name in ("version", "rows", "regions", "generations", "wal_entries", "files", "bytes")]


SAME: Mapping[str, Callable[[Told], object]] = {
    "flush": _plan,
    "merge": _merged,
    "catchup": _plan,
    "compact": lambda told: (told["plan"], told["fragments_before"]),
    "snapshot": _plan,
    "gc": _collected,
    "verify": _plan,
    "repair": lambda told: {**told, "seconds": 0, "dry_run": None},
    "relocate": lambda told: told["plan"] if "plan" in told else told["outcome"] in {"planned", "done"},
    "backup": _copied,
    "clone": _copied,
}
"""What both reports must say alike, by job."""

ELSEWHERE = {
    "ingest": "needs Spark: tests/integration/spark/ingest/test_ingest.py",
    "quality": "needs Spark, and its plan is what is recorded as checked: tests/integration/spark/test_quality.py",
    "maintain": "below",
}


def test_every_job_is_tried_here() -> None:
    assert SAME.keys() | ELSEWHERE.keys() == {kind.info.name for kind in REQUESTS}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """An index, two base fragments, three flushed MemTables, and rows in the WAL of a writer that is gone."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    table.dataset().create_scalar_index("score", "BTREE")
    write_generations(table, [1, 5], [5, 6], name="a")
    write_generations(table, [5, 6], name="b")
    return table.uri


@pytest.fixture
def opened() -> Opened:
    """Return what opens a table in two hours, when the clock stands still, so that ages are equal in both reports."""
    clock = later(7200)
    return lambda uri: Table.open(uri, settings=SETTINGS, clock=clock, rng=seeded_rng(1))


def abandon_rows(uri: str) -> None:
    """Write rows that no MemTable has."""
    settings = SETTINGS.model_copy(update={"writer": WriterSettings(background_flush=False)})
    TableWriter.open(Table.open(uri, settings=settings).base).put(people(7, name="left"))


@pytest.mark.parametrize("job", sorted(SAME))
def test_dry_run_tells_what_the_run_does(opened: Opened, uri: str, job: str) -> None:
    for request in BEFORE.get(job, ()):
        opened(uri).run(request)
    if job == "flush":
        abandon_rows(uri)
    given: dict[str, object] = {"target": f"{uri}-copy"} if job in {"backup", "clone"} else {}
    files = sorted(str(path) for path in Path(uri).rglob("*"))

    planned = opened(uri).run(parse_request(job, {**given, "dry_run": True})).to_dict()
    unchanged = sorted(str(path) for path in Path(uri).rglob("*")) == files
    done = opened(uri).run(parse_request(job, {**given, "dry_run": False})).to_dict()

    assert unchanged
    assert SAME[job](planned) == SAME[job](done)
    expected = {("nothing_to_do", "nothing_to_do")} if job == "repair" else {("planned", "done")}
    assert {(planned["outcome"], done["outcome"])} == expected


def test_dry_run_of_a_cycle_tells_which_steps_run_and_of_which_it_knows_nothing(opened: Opened, uri: str) -> None:
    """Each plan is made on the present state: exact up to the first step that changes it, and marked from there on."""
    planned = opened(uri).run(MaintainRequest(dry_run=True)).to_dict()["steps"]
    done = opened(uri).run(MaintainRequest()).to_dict()["steps"]

    exact = [each["step"] for each in planned if not each["unaware_of"]]
    assert exact == ["flush", "audit", "merge"]
    for before, after in zip(planned[:3], done[:3], strict=True):
        assert (before["step"], before["end"]) == (after["step"], after["end"])
        assert (before["outcome"], after["outcome"]) in {("nothing_to_do", "nothing_to_do"), ("planned", "done")}
    assert all(each["unaware_of"][0] == "merge" for each in planned[3:])


def test_dry_run_leaves_out_what_a_run_leaves_out(opened: Opened, uri: str) -> None:
    """Steps that ran a moment ago are left out of both, with the same words."""
    opened(uri).run(MaintainRequest())

    planned, done = (opened(uri).run(MaintainRequest(dry_run=dry_run)).to_dict()["steps"] for dry_run in (True, False))

    told = [(each["step"], each["end"], each["why"]) for each in planned if each["end"] != "ran"]
    assert told == [(each["step"], each["end"], each["why"]) for each in done if each["end"] != "ran"]
    assert {name for name, _, _ in told} == {"flush", "audit", "verify", "check"}
