"""Shares of work on a real session: results, errors, names, and executors without the package."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import time
import types
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from memwal_core.errors import BareExecutorError, DamagedError, UnavailableError
from memwal_core.spark.slots import slots_of
from memwal_core.spark.tasks import SparkTasks
from testkit.tables.native_regions import native_region_id

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]


def doubled(share):
    return MappingProxyType({"share": share["share"] * 2})


def damaged(share):
    if share == 2:
        raise DamagedError.of(native_region_id(share), "a/path", "a cause")
    return share


def broken(share):
    raise RuntimeError("nobody expected this")


def jobs_of(spark, group):
    """Return the jobs of a group, once Spark's listeners have heard of all that was done."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return spark.sparkContext.statusTracker().getJobIdsForGroup(group)


def test_shares_come_back_in_their_order_under_the_name_of_their_stage(spark):
    tasks = SparkTasks(spark, "/a/table")

    found = tasks.map("gc: read manifests", doubled, [MappingProxyType({"share": number}) for number in range(5)])

    assert found == [{"share": 2 * number} for number in range(5)]
    assert tasks.slots == 2
    [job] = jobs_of(spark, "memwal /a/table")
    description = spark.sparkContext._jsc.sc().statusStore().job(job).description().get()
    assert description == "gc: read manifests [/a/table, 5 shares]"
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
    assert tasks.map("nothing", doubled, []) == []


def test_error_on_purpose_comes_back_as_it_was_raised(spark):
    with pytest.raises(DamagedError) as raised:
        SparkTasks(spark, "/a/table").map("damage", damaged, [1, 2, 3])

    assert (raised.value.facts["region_id"], raised.value.facts["path"]) == (str(native_region_id(2)), "a/path")


def test_other_failure_of_the_engine_can_be_tried_again(spark):
    with pytest.raises(UnavailableError) as raised:
        SparkTasks(spark, "/a/table").map("break", broken, [1])

    assert raised.value.facts["stage"] == "break"
    cause = str(raised.value.facts["cause"])
    assert cause.endswith("nobody expected this")
    assert "\n" not in cause  # It had the places in Java's code, hundreds of lines.


def test_executor_without_the_package_is_named_in_one_sentence(spark, monkeypatch):
    module = types.ModuleType("only_on_the_driver")
    exec("def work(share):\n    return share", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_on_the_driver", module)

    with pytest.raises(BareExecutorError, match="an executor cannot import what the job needs") as raised:
        SparkTasks(spark, "/a/table").map("anything", module.work, [1, 2])

    assert raised.value.facts["missing"] == "only_on_the_driver"
    assert raised.value.facts["cause"] == "No module named 'only_on_the_driver'"  # Or why a library cannot be loaded.
    assert raised.value.facts["python"]
    assert "docs/spark.md" in raised.value.remedy


LATE = "mailbox"


def importing(_share):
    importlib.import_module(LATE)
    time.sleep(0.2)  # Long enough for the other slot to need Python, too.
    return os.getpid()


def looking(_share):
    time.sleep(0.2)
    late = sys.modules.get(LATE)
    return os.getpid(), late is not None, any(each is late for each in gc.get_objects())


def test_what_any_task_imports_is_not_looked_through_after_each_task(spark):
    """Spark's Python collects garbage after each task: with what a job imports, 50 ms of processor time."""
    tasks = SparkTasks(spark, "/a/table")
    tasks.map("begin", doubled, [MappingProxyType({"share": number}) for number in range(4)])
    imported = set(tasks.map("import", importing, range(4)))

    found = tasks.map("look", looking, range(4))

    assert {pid for pid, _, _ in found} & imported
    assert [(known, seen) for pid, known, seen in found if pid in imported and (not known or seen)] == []


def seen(share):
    """Wait for a file, and tell whether it came."""
    end = time.monotonic() + 60
    while share is not None and not share.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return share is None or share.exists()


def test_group_that_is_done_goes_on_while_others_are_worked_on(spark, tmp_path):
    mark = tmp_path / "mark"

    def then(stage, found):
        if stage == "quick":
            mark.touch()
        return stage, found

    found = SparkTasks(spark, "/a/table").map_groups(seen, {"slow": [mark], "quick": [None, None], "none": []}, then)

    assert found == [("slow", [True]), ("quick", [True, True]), ("none", [])]


def test_error_on_purpose_of_a_group_comes_back_as_it_was_raised(spark):
    groups = {"sound": [1], "damage": [1, 2]}

    with pytest.raises(DamagedError) as raised:
        SparkTasks(spark, "/a/table").map_groups(damaged, groups, lambda _stage, found: found)

    assert raised.value.facts["path"] == "a/path"


def test_slots_are_those_of_the_executors_that_run():
    """``defaultParallelism`` is 2 where one executor has one core, which made twice the shares."""

    def context(running, **allocation):
        scala = SimpleNamespace(
            maxNumConcurrentTasks=lambda _profile: running,
            resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: None),
        )
        conf = {f"spark.dynamicAllocation.{name}": value for name, value in allocation.items()}
        return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala), defaultParallelism=2, getConf=lambda: conf)

    assert [slots_of(context(running)) for running in (0, 1, 5)] == [2, 1, 5]
    assert [slots_of(context(running, enabled="true")) for running in (1, 5)] == [2, 5], "more start for waiting tasks"
    assert slots_of(context(1, enabled="true", maxExecutors="1")) == 1


def halves(share):
    if share == 13:
        raise DamagedError.of(native_region_id(share), "a/path", "a cause")
    return ((part, share + part) for part in (0, 1))


def together(pieces):
    found = sorted(pieces)
    if found == [101]:
        raise DamagedError.of(native_region_id(1), "a/part", "a cause")
    return MappingProxyType({"sum": sum(found)})


def test_pieces_of_a_part_come_together_under_the_name_of_their_stage(spark):
    tasks = SparkTasks(spark, "/another/table")

    found = tasks.exchange("verify: count keys", halves, range(10), together, 3)

    assert found == [{"sum": 45}, {"sum": 55}, {"sum": 0}]
    [job] = jobs_of(spark, "memwal /another/table")
    description = spark.sparkContext._jsc.sc().statusStore().job(job).description().get()
    assert description == "verify: count keys [/another/table, 10 shares]"
    assert tasks.exchange("nothing", halves, [], together, 2) == [{"sum": 0}] * 2


@pytest.mark.parametrize(("share", "path"), [(13, "a/path"), (100, "a/part")], ids=["spread", "gather"])
def test_error_on_purpose_ends_an_exchange_as_it_was_raised(spark, share, path):
    with pytest.raises(DamagedError) as raised:
        SparkTasks(spark, "/a/table").exchange("damage", halves, [share], together, 2)

    assert raised.value.facts["path"] == path


def only_here(function: str):
    module = types.ModuleType("only_on_the_driver")
    exec(function, module.__dict__)
    sys.modules["only_on_the_driver"] = module
    return module.work


@pytest.mark.parametrize("where", ["spread", "gather"])
def test_executor_without_the_package_ends_an_exchange_in_one_sentence(spark, monkeypatch, where):
    monkeypatch.setitem(sys.modules, "only_on_the_driver", None)  # So that it is taken away again.
    work = only_here("def work(given):\n    return [(0, 1)]")

    with pytest.raises(BareExecutorError, match="an executor cannot import what the job needs") as raised:
        SparkTasks(spark, "/a/table").exchange(
            "anything", work if where == "spread" else halves, [1, 2], work if where == "gather" else together, 2
        )

    assert raised.value.facts["missing"] == "only_on_the_driver"


def awaited(share):
    """Wait until the log of the driver has told that the other shares ended."""
    deadline = time.monotonic() + 120
    while share and not Path(share).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return time.monotonic() < deadline


def test_log_tells_how_many_tasks_of_a_stage_have_ended(spark, tmp_path):
    told = tmp_path / "told"

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "on executors: gc: list regions: 2 of 3 tasks ended":
                told.touch()

    logger, teller = logging.getLogger("memwal_core.spark.progress"), Teller()
    before = logger.level
    logger.addHandler(teller)
    logger.setLevel(logging.INFO)
    try:
        tasks = SparkTasks(spark, "/told/table", tell_every_s=0.02)
        assert tasks.map("gc: list regions", awaited, ["", "", str(told)]) == [True] * 3
    finally:
        logger.removeHandler(teller)
        logger.setLevel(before)
