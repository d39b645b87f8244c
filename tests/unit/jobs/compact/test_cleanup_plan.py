"""Which versions go, and why the others stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memwal_core.base_table import TableVersion
from memwal_core.jobs.compact.cleanup import Kept, plan_cleanup
from memwal_core.settings import CompactSettings

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SETTINGS = CompactSettings(retention_s=86_400, keep_versions=2)


def versions(*ages_h: float, tags: dict[int, tuple[str, ...]] | None = None) -> list[TableVersion]:
    return [
        TableVersion(number, NOW - timedelta(hours=age), (tags or {}).get(number, ()))
        for number, age in enumerate(ages_h, 1)
    ]


def test_old_versions_go_and_young_ones_stay():
    plan = plan_cleanup(versions(72, 48, 25, 23, 1, 0), NOW, SETTINGS, needed=())
    assert plan.remove == (1, 2, 3)
    assert plan.keep == {4: Kept.YOUNG, 5: Kept.NEWEST, 6: Kept.NEWEST}


def test_newest_versions_stay_whatever_their_age():
    plan = plan_cleanup(versions(900, 800, 700), NOW, SETTINGS, needed=())
    assert (plan.remove, plan.keep) == ((1,), {2: Kept.NEWEST, 3: Kept.NEWEST})


@pytest.mark.req("GC-19")
def test_tagged_and_needed_versions_stay():
    plan = plan_cleanup(versions(90, 80, 70, 60, 50, tags={2: ("audit",)}), NOW, SETTINGS, needed={1})
    assert plan.remove == (3,)
    assert (plan.keep[1], plan.keep[2]) == (Kept.NEEDED, Kept.TAGGED)


def test_version_from_which_a_branch_begins_stays():
    first, *others = versions(90, 80, 70, 60)
    plan = plan_cleanup([replace(first, branches=("experiment",)), *others], NOW, SETTINGS, needed=())
    assert (plan.remove, plan.keep[1]) == ((2,), Kept.BRANCHED)


def test_version_exactly_as_old_as_the_retention_goes():
    plan = plan_cleanup(versions(24, 0, 0), NOW, SETTINGS, needed=())
    assert plan.remove == (1,)


def test_version_from_the_future_stays():
    plan = plan_cleanup(versions(-5, 0, 0), NOW, SETTINGS, needed=())
    assert plan.remove == ()


def test_counts_are_given_by_reason():
    plan = plan_cleanup(versions(48, 23, 1, 0), NOW, SETTINGS, needed=())
    assert plan.to_dict() == {"remove": [1], "keep": {"among the newest": 2, "younger than the retention": 1}}
