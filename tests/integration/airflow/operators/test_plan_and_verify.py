"""The operators that plan and verify, without servers: what they leave to applications, and what they return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from memwal_core.airflow.operators.plan_and_verify import PlanWork, VerifyWork
from memwal_core.airflow.operators.work import LeasedWork
from memwal_core.airflow.tasks.cycle import CycleTable, choose_cycle_tables, prepare_step
from memwal_core.airflow.tasks.work import WorkItem, hold_leases, lease_key
from memwal_core.base_table import BaseTable
from memwal_core.coordination.lease import parse_ticket
from memwal_core.jobs.catalog import parse_request
from memwal_core.jobs.cycle.plan import LeftOut
from memwal_core.jobs.document import JobDocument, parse_job
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.merge import verify as merge_proof
from memwal_core.jobs.verify.facts import VERIFY
from memwal_core.registry import REGISTRY_VARIABLE
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.garbage import merged_table_of_garbage
from testkit.tables.people import people

pytestmark = [pytest.mark.airflow, pytest.mark.req("O10")]

RUN = "dag/manual__1"


class Applications:
    """Runs in this process what would be submitted, and lets nothing heavy run outside of that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handed: list[tuple[str, JobDocument]] = []
        self._submitted = False
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
        monkeypatch.setattr(SparkSubmitOperator, "execute", lambda operator, _: self._run(operator))
        self._only_submitted(monkeypatch, GcSurveyor, "survey")
        self._only_submitted(monkeypatch, merge_proof, "require_single_keys")

    def _only_submitted(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def guarded(*given: Any, **named: Any) -> Any:
            assert self._submitted, f"{name} ran in the worker"
            return real(*given, **named)

        monkeypatch.setattr(owner, name, guarded)

    def _run(self, operator: Any) -> None:
        document = parse_job(operator._hook.submit.keywords["env"]["MAINTENANCE_JOB"])
        self.handed.append((Path(operator.application).name, document))
        with self._as_application():
            Table.open(document.uri).run(
                document.parsed(),
                holder=document.holder,
                ticket=parse_ticket(document.ticket) if document.ticket else None,
            )

    @contextmanager
    def _as_application(self) -> Iterator[None]:
        self._submitted = True
        try:
            yield
        finally:
            self._submitted = False


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BaseTable:
    monkeypatch.setenv("MEMWAL_GC__GRACE_S", "0")
    return merged_table_of_garbage(str(tmp_path / "people.lance"))


@pytest.fixture
def applications(table: BaseTable, monkeypatch: pytest.MonkeyPatch) -> Applications:
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_OBJECTS", "3")
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_BYTES", "16")
    return Applications(monkeypatch)


def _context(table: BaseTable, **params: object) -> Any:
    asked = {"table": table.uri, "dry_run": False, **params}
    dag_run = SimpleNamespace(logical_date=None, start_date=None, run_type="manual", conf=asked)
    dag = SimpleNamespace(dag_id="dag", params=asked)
    attempt = SimpleNamespace(try_number=1, max_tries=4)
    return {"dag": dag, "run_id": "manual__1", "dag_run": dag_run, "params": asked, "ti": attempt}


def _plan(table: BaseTable, job: str, *, shows: bool = False, **params: object) -> list[WorkItem]:
    operator = PlanWork(task_id="plan", job=job, jobs_folder="", starts=(), shows=shows)
    found: list[WorkItem] = operator.execute(_context(table, **params))
    return found


def _verify(table: BaseTable, job: str, items: list[WorkItem], done: list[Any]) -> str:
    operator = VerifyWork(task_id="verify", job=job, jobs_folder="", items=items, done=done)
    return str(operator.execute(_context(table)))


def test_collection_of_many_objects_is_planned_where_it_is_done(table: BaseTable, applications: Applications) -> None:
    """Before, a worker listed and judged all objects of the table first, and once more to verify."""
    [item] = hold_leases(_plan(table, "gc"), RUN)
    assert applications.handed == []

    result = LeasedWork(task_id="work", job="gc", item=item, jobs_folder="").execute(_context(table))
    said = _verify(table, "gc", [item], [result])

    assert [name for name, _ in applications.handed] == ["gc.py"]
    assert item["where"].startswith("as a Spark application: it plans there, too, for ")
    assert (result["outcome"], said) == ("done", f"{table.uri}: the next run says what is due again")
    assert not list((Path(table.uri) / "_mem_wal").glob("*/*_gen_*/_versions"))


def test_dry_run_of_many_objects_is_an_application_of_the_plan_that_takes_no_lease(
    table: BaseTable, applications: Applications
) -> None:
    with pytest.raises(AirflowSkipException):
        _plan(table, "gc", dry_run=True)

    [(name, document)] = applications.handed
    assert (name, document.parsed().dry_run, document.ticket) == ("gc.py", True, "")
    assert Table.open(table.uri).opened.ledger.runs("gc") == []


def test_plan_that_a_person_agrees_to_is_made_before(table: BaseTable, applications: Applications) -> None:
    [item] = _plan(table, "gc", shows=True)

    assert [document.parsed().dry_run for _, document in applications.handed] == [True]
    assert item["request"]["dry_run"] is False
    assert lease_key(item) is not None


def test_collection_of_few_objects_is_planned_in_the_worker(table: BaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: below the bounds nothing is submitted."""
    monkeypatch.setattr(SparkSubmitOperator, "execute", None)

    [item] = _plan(table, "gc")

    assert item["planned"]
    assert item["where"].startswith("in the worker: ")


def test_keys_after_a_large_merge_are_counted_by_an_application(table: BaseTable, applications: Applications) -> None:
    """Before, a worker read all keys of the table after each merge."""
    with TableWriter.open(table) as writer:
        writer.put(people(5, 6))
        writer.flush()
    [item] = hold_leases(_plan(table, "merge"), RUN)
    result = LeasedWork(task_id="work", job="merge", item=item, jobs_folder="").execute(_context(table))

    said = _verify(table, "merge", [item], [result])
    again = _verify(table, "merge", [item], [result])

    assert [name for name, _ in applications.handed] == ["merge.py", "verify.py", "verify.py"]
    assert said == again
    assert "6 rows, every key once" in said
    assert {run.holder for run in Table.open(table.uri).opened.ledger.runs(VERIFY.job)} == {RUN}


def test_keys_that_were_counted_before_a_merge_prove_nothing_of_it(
    table: BaseTable, applications: Applications, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TableWriter.open(table) as writer:
        writer.put(people(5, 6))
        writer.flush()
    planned = hold_leases(_plan(table, "merge"), RUN)
    nothing = {"table": "", "uri": "", "job": "merge", "outcome": "done", "facts": {}, "due_at": ""}
    _verify(table, "merge", [{**planned[0], "promise": {"through": {}}}], [nothing])
    [item] = planned
    result = LeasedWork(task_id="work", job="merge", item=item, jobs_folder="").execute(_context(table))
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_BYTES", "1000000")

    with pytest.raises(AssertionError, match="require_single_keys ran in the worker"):
        _verify(table, "merge", [item], [result])


def test_repeated_keys_that_an_application_found_end_the_run(table: BaseTable, applications: Applications) -> None:
    with TableWriter.open(table) as writer:
        writer.put(people(5, 6))
        writer.flush()
    [item] = hold_leases(_plan(table, "merge"), RUN)
    result = LeasedWork(task_id="work", job="merge", item=item, jobs_folder="").execute(_context(table))
    table.dataset().insert(people(1))

    with pytest.raises(AirflowFailException, match="more than once"):
        _verify(table, "merge", [item], [result])
    assert [name for name, _ in applications.handed] == ["merge.py", "verify.py"]


def test_cycle_plans_no_large_collection_in_its_worker(
    table: BaseTable, applications: Applications, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with nothing else to do is due for it once in an hour."""
    registry = tmp_path / "tables.toml"
    registry.write_text(
        f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\ncollect_garbage = true\nremove_versions = false\n"
    )
    monkeypatch.setenv(REGISTRY_VARIABLE, str(registry))
    admin = Table.open(table.uri)
    for job in ("flush", "verify", "catchup", "compact", "snapshot"):
        admin.run(parse_request(job, {}))
    assert [each["table"] for each in choose_cycle_tables([], by_schedule=True)] == ["people"]

    step = prepare_step("collect_garbage", CycleTable(label="people", table="people", ignore_pauses=False))

    assert not isinstance(step, LeftOut)
    assert step["where"].startswith("as a Spark application: it plans there, too, for ")
    with applications._as_application():
        admin.run(parse_request("gc", {"dry_run": False}))
    admin.run(parse_request("snapshot", {}))
    assert choose_cycle_tables([], by_schedule=True) == []
    registry.write_text(registry.read_text().replace("collect_garbage = true", "collect_garbage = false"))
    left_out = prepare_step("collect_garbage", CycleTable(label="people", table="people", ignore_pauses=False))
    assert isinstance(left_out, LeftOut)
    assert left_out.why.startswith("it would only plan, and as a Spark application: ")
