"""Which strategy a pass takes, and the reason that is shown."""

from __future__ import annotations

import pytest

from memwal_core.jobs.merge.decide.strategy import PassSize, choose_strategy
from memwal_core.settings import MergeSettings

BOUNDED = MergeSettings(native_max_bytes=1000, executors_min_bytes=0)


@pytest.mark.parametrize(
    ("size", "executors", "name", "reason"),
    [
        (PassSize(1000, 0), 1, "native", "without tombstones in one process"),
        (PassSize(1001, 0), 1, "single_commit", "1001 bytes are more than merge.native_max_bytes, which is 1000"),
        (PassSize(10, 1), 1, "single_commit", "1 tombstones"),
        (PassSize(10, 0), 4, "single_commit", "4 executors"),
        (PassSize(10_000, 5), None, "native", "the only strategy available"),
        (PassSize(0, 0), 1, "native", "0 bytes"),
    ],
)
def test_auto_is_native_only_for_small_passes_without_tombstones_in_one_process(size, executors, name, reason):
    choice = choose_strategy(size, BOUNDED, None if executors is None else lambda: executors)

    assert choice.name == name
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("size", "name", "on_executors"),
    [
        (PassSize(99, 0), "native", False),
        (PassSize(99, 1), "single_commit", False),
        (PassSize(100, 0), "single_commit", True),
        (PassSize(100, 1), "single_commit", True),
    ],
)
def test_pass_that_is_too_small_for_executors_stays_with_the_driver(size, name, on_executors):
    choice = choose_strategy(size, MergeSettings(executors_min_bytes=100), lambda: 4)

    assert (choice.name, choice.on_executors) == (name, on_executors)


@pytest.mark.parametrize("name", ["native", "single_commit"])
def test_setting_wins_over_size_and_says_so(name):
    choice = choose_strategy(PassSize(10_000, 3), MergeSettings(strategy=name, native_max_bytes=1), lambda: 8)

    assert (choice.name, choice.reason) == (name, f"the setting merge.strategy is {name}")


@pytest.mark.parametrize("size", [PassSize(0, 0), PassSize(99, 3)])
def test_executors_are_not_asked_about_a_pass_that_is_too_small_for_them(size):
    def start():
        raise AssertionError("a session was started")

    assert not choose_strategy(size, MergeSettings(executors_min_bytes=100), start).on_executors
