"""Who does a job that a scheduler starts: one rule for all jobs, from what their plans say."""

from __future__ import annotations

import pytest

from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.job import Job
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.quality.request import QualityRequest
from memwal_core.jobs.runner import load_job
from memwal_core.jobs.sharing.dispatch import dispatch
from memwal_core.jobs.sharing.place import Work
from memwal_core.settings import MIB, DispatchSettings

pytestmark = pytest.mark.req("O10")

BOUNDS = DispatchSettings(max_bytes=MIB, max_regions=10, max_objects=100)
SMALL = Work(regions=10, size_bytes=MIB, objects=100)


@pytest.mark.parametrize(
    ("work", "to_spark", "reason"),
    [
        (SMALL, False, "1.0 MiB, 10 regions, 100 objects, which takes less time than an application to start"),
        (Work(), False, "what there is to do, which takes less time than an application to start"),
        (Work(size_bytes=MIB + 1), True, "are more than dispatch.max_bytes, which is 1.0 MiB"),
        (Work(regions=11), True, "11 regions are more than dispatch.max_regions, which is 10"),
        (Work(objects=101), True, "101 objects are more than dispatch.max_objects, which is 100"),
    ],
)
def test_anything_above_a_bound_goes_to_spark_and_says_why(work, to_spark, reason):
    found = dispatch(MergeRequest(), work, BOUNDS)

    assert found.to_spark is to_spark
    assert found.reason.endswith(reason)
    assert str(found).startswith("as a Spark application: " if to_spark else "in the worker: ")


def test_asking_for_spark_is_enough_and_asking_for_one_process_makes_nothing_smaller():
    assert dispatch(GcRequest(engine="spark"), Work(), BOUNDS).to_spark
    assert dispatch(GcRequest(engine="local"), Work(regions=11), BOUNDS).to_spark
    assert not dispatch(GcRequest(engine="local"), SMALL, BOUNDS).to_spark


def test_what_only_spark_can_do_always_goes_there():
    assert dispatch(QualityRequest(), Work(), BOUNDS).to_spark


@pytest.mark.parametrize(
    "request_type", [each for each in REQUESTS if not (each.info.by_hand or each.info.needs_spark)], ids=str
)
def test_every_job_that_a_worker_may_do_tells_its_size(request_type):
    """Otherwise it would stay in the worker however large it is. The cycle's steps tell theirs one by one."""
    job = load_job(request_type())
    assert request_type.info.name == "maintain" or type(job).size is not Job.size
