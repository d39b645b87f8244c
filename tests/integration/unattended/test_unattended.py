"""A table that nobody looks after stops growing, and calls nobody."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import pyarrow.compute as pc
import pytest

from memwal_core.jobs.cycle.request import MaintainRequest, QualityGate
from memwal_core.settings import (
    GcSettings,
    LedgerSettings,
    RetentionSettings,
    Settings,
    StorageSettings,
    WriterSettings,
)
from testkit.unattended import Inventory, Unattended

_ALLOWED_GROWTH = 1.2
"""Between the largest inventories of two spans of a steady state."""
_FEW = 40
"""Files of a kind whose number says nothing."""

SETTINGS = Settings(
    storage=StorageSettings(fsync=False),
    # Puts flush by themselves, so that time is the test's.
    writer=WriterSettings(background_flush=False),
    retention=RetentionSettings(hours=24),
)
HURRIED = SETTINGS.model_validate(
    {
        **SETTINGS.model_dump(exclude_unset=True),
        "retention": RetentionSettings(hours=2),
        # Without the day that nothing falls below where a process may stall.
        "gc": GcSettings(wal_min_age_s=7200, orphan_age_s=7200, allow_unsafe_retention=True),
        "ledger": LedgerSettings(max_runs=10),
    }
)
"""The same with little history, so that a steady state is near."""
KEEP_ALL = MaintainRequest(delete=False, remove_versions=False)


def growing(before: Inventory, after: Inventory) -> Iterator[str]:
    """Yield what has grown."""
    for kind, count in after.files.items():
        if count > max(_FEW, _ALLOWED_GROWTH * before.files[kind]):
            yield f"{kind}: {before.files[kind]} -> {count} files"
    if after.size_bytes > _ALLOWED_GROWTH * before.size_bytes:
        yield f"{before.size_bytes} -> {after.size_bytes} bytes"


def largest(stretch: Unattended, hours: int) -> Inventory:
    """Let hours pass, and return the most that there was of each kind: compactions come and go."""
    found = []
    for _ in range(hours):
        stretch.pass_hours(1, look_every=5)
        found.append(stretch.inventory())
    return reduce(lambda one, other: Inventory(one.files | other.files, one.sizes | other.sizes), found)


def assert_rows(stretch: Unattended) -> None:
    """Compare what readers see with what was acknowledged."""
    found = stretch.table.to_arrow()
    ordered = found.take(pc.sort_indices(found["id"]))

    assert dict(zip(ordered["id"].to_pylist(), ordered["name"].to_pylist(), strict=True)) == stretch.rows


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(MaintainRequest(), marks=pytest.mark.slow, id="counted"),
        pytest.param(MaintainRequest(checks=QualityGate.MANDATORY), marks=pytest.mark.long, id="checked"),
    ],
)
def test_stretch_without_a_person_reaches_a_steady_state(tmp_path, request_):
    """O3: after twice the hours of history, nothing grows, and nothing was reported meanwhile."""
    stretch = Unattended(tmp_path, hours=9, settings=HURRIED, request=request_)
    stretch.pass_hours(3, look_every=5)
    before = largest(stretch, 3)
    after = largest(stretch, 3)
    stretch.close()

    assert list(growing(before, after)) == []
    assert stretch.alarms == []
    assert {outcome for outcome in stretch.cycles if outcome.endswith(("failed", "conflict", "blocked"))} == set()
    assert_rows(stretch)


@pytest.mark.slow
def test_stretch_without_retention_is_found_to_grow(tmp_path):
    """The negative control."""
    stretch = Unattended(tmp_path, hours=4, settings=HURRIED, request=KEEP_ALL)
    stretch.pass_hours(2, look_every=12)
    before = stretch.inventory()
    stretch.pass_hours(2, look_every=12)

    assert {each.split(":")[0] for each in growing(before, stretch.inventory())} >= {"_versions", "WAL entries"}


@pytest.mark.long
def test_month_without_a_person_stays_bounded(tmp_path):
    """4320 cycles, one every ten minutes: after the third day there is never more than on the second and third.

    With two hours of history, so that the month is 360 times what is kept: about 50 minutes on two cores.
    """
    stretch = Unattended(tmp_path, hours=30 * 24, settings=HURRIED)
    stretch.pass_hours(24, look_every=5)
    before = largest(stretch, 2 * 24)
    after = largest(stretch, 27 * 24)
    stretch.close()

    assert list(growing(before, after)) == []
    assert stretch.alarms == []
    assert_rows(stretch)
