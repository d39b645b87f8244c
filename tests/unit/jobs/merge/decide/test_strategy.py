"""Where and how a pass is prepared, and the reason that is shown."""

from __future__ import annotations

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.merge.decide.strategy import PassSize, choose_strategy, place_pass
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.jobs.sharing.place import Engine, Workplace
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.settings import MergeSettings
from memwal_core.storage import open_store
from testkit.pickling_executors import PicklingExecutors

HERE, THERE = Workplace(False, "test"), Workplace(True, "test")


@pytest.mark.parametrize(
    ("size", "place", "joined", "reason"),
    [
        (PassSize(1000, 0), HERE, True, "1000 bytes of upserts"),
        (PassSize(1001, 0), HERE, False, "1001 bytes are more than merge.join_max_bytes, which is 1000"),
        (PassSize(10, 1), HERE, False, "1 tombstones"),
        (PassSize(10, 0, lacks_columns=True), HERE, False, "lack columns"),
        (PassSize(10, 0, join_obstacle="odd names"), HERE, False, "odd names: written"),
        (PassSize(10, 0), THERE, False, "executors share the work"),
        (PassSize(10_000, 5), HERE, False, "5 tombstones"),
        (PassSize(0, 0), HERE, True, "0 bytes"),
    ],
)
def test_lance_joins_only_small_passes_of_upserts_in_one_process(size, place, joined, reason):
    choice = choose_strategy(size, MergeSettings(join_max_bytes=1000), place)

    assert choice.joined is joined
    assert reason in choice.reason
    assert choice.to_dict() == {"joined": joined, "reason": choice.reason}


def where(
    size: PassSize,
    executors: Executors | None,
    engine: Engine = Engine.AUTO,
    least: int = 100,
    *,
    dry_run: bool = False,
) -> str:
    context = JobContext(OpenTable.of(BaseTable(open_store("memory://t"))), executors=executors)
    sharing = Sharing(context, engine, MergeRequest(dry_run=dry_run))
    return str(place_pass(size, sharing, MergeSettings(executors_min_bytes=least)))


@pytest.mark.parametrize(
    ("size", "place"),
    [
        (PassSize(99, 0), "in this process: 99 B take less time than tasks take to begin"),
        (PassSize(99, 1), "in this process: 99 B take less time than tasks take to begin"),
        (PassSize(100, 0), "on executors: 100 B are at least merge.executors_min_bytes, which is 100 B"),
        (PassSize(100, 1), "on executors: 100 B are at least merge.executors_min_bytes, which is 100 B"),
        (PassSize(100, 0, has_key=False), "in this process: the table has no primary key"),
    ],
)
def test_pass_that_is_too_small_for_executors_stays_with_the_driver(size, place):
    assert where(size, PicklingExecutors(4)) == place


def test_executors_that_do_one_task_at_a_time_get_no_pass_unless_they_get_all():
    size, single = PassSize(100, 0), PicklingExecutors(1)

    assert where(size, single) == "in this process: the executors do no two tasks at once"
    assert where(size, single, Engine.SPARK) == "on executors: it was asked for"
    assert where(size, single, least=0).startswith("on executors: 100 B are at least")


def test_request_sends_every_pass_to_executors_and_says_so():
    assert where(PassSize(1, 3), PicklingExecutors(1), Engine.SPARK) == "on executors: it was asked for"


def test_request_for_executors_is_refused_where_there_are_none():
    with pytest.raises(InvalidRequestError, match="this process has none"):
        where(PassSize(1, 0), None, Engine.SPARK)
    planned = where(PassSize(1, 0), None, Engine.SPARK, dry_run=True)
    assert planned == "on executors: it was asked for, but this process has none"
    assert where(PassSize(100, 0), None) == "in this process: 100 B, and this process has no executors"


class Sleeping(PicklingExecutors):
    """Executors whose session must not start."""

    @property
    def slots(self) -> int:
        raise AssertionError("a session was started")


@pytest.mark.parametrize("size", [PassSize(0, 0), PassSize(99, 3), PassSize(10**9, 0, has_key=False)])
def test_executors_are_not_asked_about_a_pass_that_is_not_for_them(size):
    assert where(size, Sleeping()).startswith("in this process: ")


def test_executors_are_always_asked_where_every_pass_is_for_them():
    """YARN gives up an application in cluster mode that starts no session."""
    with pytest.raises(AssertionError, match="a session was started"):
        where(PassSize(0, 0), Sleeping(), least=0)


def test_request_keeps_a_large_pass_in_the_process():
    assert where(PassSize(10**9, 0), Sleeping(), Engine.LOCAL) == "in this process: it was asked for"
