"""Shares of work on a real session: results, errors, names, and executors without the package."""

from __future__ import annotations

import sys
import types
from types import MappingProxyType

import pytest

from memwal_core.errors import DamagedError, InvalidRequestError, UnavailableError
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


def test_shares_come_back_in_their_order_under_the_name_of_their_stage(spark):
    tasks = SparkTasks(spark, "/a/table")

    found = tasks.map("gc: read manifests", doubled, [MappingProxyType({"share": number}) for number in range(5)])

    assert found == [{"share": 2 * number} for number in range(5)]
    assert tasks.slots == 2
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("memwal /a/table")
    assert len(jobs) == 1
    job = spark.sparkContext._jsc.sc().statusStore().job(jobs[0])
    assert job.description().get() == "gc: read manifests [/a/table, 5 shares]"
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
    assert "nobody expected this" in str(raised.value.facts["cause"])


def test_executor_without_the_package_is_named_in_one_sentence(spark, monkeypatch):
    module = types.ModuleType("only_on_the_driver")
    exec("def work(share):\n    return share", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_on_the_driver", module)

    with pytest.raises(InvalidRequestError, match="an executor cannot import what the job needs") as raised:
        SparkTasks(spark, "/a/table").map("anything", module.work, [1, 2])

    assert raised.value.facts["missing"] == "only_on_the_driver"
    assert raised.value.facts["python"]
    assert "docs/operating.md" in raised.value.remedy
