"""Where and how a pass is prepared, and the reason that is shown."""

from __future__ import annotations

import pytest

from memwal_core.jobs.merge.decide.strategy import PassSize, choose_strategy
from memwal_core.settings import MergeSettings

BOUNDED = MergeSettings(join_max_bytes=1000, executors_min_bytes=0)


@pytest.mark.parametrize(
    ("size", "executors", "name", "joined", "reason"),
    [
        (PassSize(1000, 0), 1, "in_process", True, "1000 bytes of upserts"),
        (PassSize(1001, 0), 1, "in_process", False, "1001 bytes are more than merge.join_max_bytes, which is 1000"),
        (PassSize(10, 1), 1, "in_process", False, "1 tombstones"),
        (PassSize(10, 0, lacks_columns=True), 1, "in_process", False, "lack columns"),
        (PassSize(10, 0, join_obstacle="odd names"), 1, "in_process", False, "odd names: written"),
        (PassSize(10, 0), 4, "executors", False, "4 executors"),
        (PassSize(10_000, 5), None, "in_process", False, "5 tombstones"),
        (PassSize(0, 0), None, "in_process", True, "0 bytes"),
    ],
)
def test_lance_joins_only_small_passes_of_upserts_in_one_process(size, executors, name, joined, reason):
    choice = choose_strategy(size, BOUNDED, None if executors is None else lambda: executors)

    assert (choice.name, choice.joined) == (name, joined)
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("size", "name"),
    [
        (PassSize(99, 0), "in_process"),
        (PassSize(99, 1), "in_process"),
        (PassSize(100, 0), "executors"),
        (PassSize(100, 1), "executors"),
    ],
)
def test_pass_that_is_too_small_for_executors_stays_with_the_driver(size, name):
    assert choose_strategy(size, MergeSettings(executors_min_bytes=100), lambda: 4).name == name


def test_setting_sends_every_pass_to_executors_and_says_so():
    choice = choose_strategy(PassSize(1, 3), MergeSettings(strategy="executors"), lambda: 1)

    assert (choice.name, choice.reason) == ("executors", "it was asked for, by the run or by merge.strategy")


def test_setting_for_executors_is_no_obstacle_where_there_are_none():
    assert choose_strategy(PassSize(1, 0), MergeSettings(strategy="executors"), None).name == "in_process"


def start() -> int:
    raise AssertionError("a session was started")


@pytest.mark.parametrize("size", [PassSize(0, 0), PassSize(99, 3)])
def test_executors_are_not_asked_about_a_pass_that_is_too_small_for_them(size):
    assert choose_strategy(size, MergeSettings(executors_min_bytes=100), start).name == "in_process"


def test_setting_keeps_a_large_pass_in_the_process():
    assert choose_strategy(PassSize(10**9, 0), MergeSettings(strategy="in_process"), start).name == "in_process"
