"""Steps of a cycle as the operator runs them in a worker."""

from __future__ import annotations

from memwal_core.airflow.tasks.cycle import CycleResult, CycleTable, prepare_step, step_result
from memwal_core.airflow.tasks.work import do_work
from memwal_core.jobs.cycle.plan import LeftOut


def run_step(name: str, table: CycleTable, holder: str, followed: CycleResult | None = None) -> CycleResult | LeftOut:
    """Plan a step and run it here, or return why it does not run."""
    found = prepare_step(name, table, followed)
    return found if isinstance(found, LeftOut) else step_result(name, do_work(found, holder))
