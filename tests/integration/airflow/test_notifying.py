"""What the operator's notifiers are handed, and how long a run may take; servers are asked in ``test_servers``."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from memwal_core.airflow import failures
from memwal_core.airflow.defaults import DEADLINE_VARIABLE, SCHEDULE_VARIABLE, deadlines, schedule, time_of
from memwal_core.airflow.job_dag import job_dag
from memwal_core.airflow.links import RunbookLink, TablePageLink
from memwal_core.airflow.notifying import NOTIFIERS_VARIABLE, notifiers
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.jobs.gc.request import GcRequest
from testkit.notifiers import notifiers_telling, told

pytestmark = pytest.mark.airflow


def test_failure_reaches_every_notifier_and_hostile_text_is_rendered_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTIFIERS_VARIABLE, notifiers_telling(tmp_path / "told"))
    error = CorruptionError("a {{ 7 * 7 }} is gone", remedy="follow docs/runbooks/wal-lag.md", table="orders")

    failures.tell_failure({"exception": error, "params": {}, "ti": SimpleNamespace(dag_id="d", task_id="t")})

    [message] = told(tmp_path / "told")
    assert message.startswith("maintenance failed: orders; a {{ 7 * 7 }} is gone")
    assert message.endswith("; docs/runbooks/wal-lag.md; False")


def test_run_that_takes_too_long_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTIFIERS_VARIABLE, notifiers_telling(tmp_path / "told"))
    run = {"dag_id": "memwal_merge", "dag_run_id": "manual__1", "conf": {"table": "orders"}}
    asyncio.run(failures.tell_overdue({"dag_run": run}, 600))
    assert told(tmp_path / "told") == [
        "maintenance takes too long: orders; the run manual__1 has not ended in 600 s; docs/runbooks/stuck-job.md; True"
    ]


def test_run_that_airflow_ended_is_told_and_one_whose_task_failed_is_not_told_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow skips the tasks of a run that takes too long, so the run that was stuck for a day was the silent one."""
    monkeypatch.setenv(NOTIFIERS_VARIABLE, notifiers_telling(tmp_path / "told"))
    context = {"dag": job_dag(GcRequest, __file__), "run_id": "manual__1", "params": {"table": "orders"}}
    for reason in ("task_failure", "timed_out"):
        context["dag"].on_failure_callback({**context, "reason": reason})

    [message] = told(tmp_path / "told")
    assert message.startswith("maintenance takes too long: orders; Airflow ended the run manual__1")


def test_notifier_that_cannot_be_made_keeps_an_alert_from_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = json.loads(notifiers_telling(tmp_path / "told"))
    broken = {"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "with": {"no_such": "argument"}}
    monkeypatch.setenv(NOTIFIERS_VARIABLE, json.dumps([broken, *working]))

    failures.tell_failure({"exception": OSError("x"), "params": {}, "ti": SimpleNamespace(dag_id="d", task_id="t")})

    assert len(told(tmp_path / "told")) == 1


@pytest.mark.parametrize(("code", "given_up"), [(2, True), (4, False), (5, True), (8, True)])
def test_exit_code_of_a_driver_on_kubernetes_decides_and_not_that_of_its_submission(code: int, given_up: bool) -> None:
    """Wrong input and damage were submitted five times: spark-submit itself ends with 0 there."""
    failed = AirflowException(f"Cannot execute: x. Error code is: 0. Kubernetes spark exit code is: {code}")

    assert failures.exit_code_of(failed) == code
    assert (failures.reason_to_give_up(failed) is not None) is given_up


def test_notifiers_of_the_page_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text()
    [text] = re.findall(rf"^export {NOTIFIERS_VARIABLE}='(.*?)'$", page, re.M | re.S)
    monkeypatch.setenv(NOTIFIERS_VARIABLE, text)

    [mail] = notifiers()

    assert (type(mail).__name__, mail.to) == ("SmtpNotifier", "oncall@example.com")


@pytest.mark.parametrize(
    "text", ["{", "{}1", '[{"with": {}}]', '["x"]', '[{"class": "no.such.Notifier"}]', '[{"class": "pathlib.Path"}]']
)
def test_wrong_setting_is_refused_with_an_example(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTIFIERS_VARIABLE, text)
    with pytest.raises(InvalidRequestError, match="SmtpNotifier"):
        notifiers()


def test_runs_have_no_deadline_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deadlines() == []
    monkeypatch.setenv(DEADLINE_VARIABLE, "1800")
    [deadline] = deadlines()
    assert deadline.interval == timedelta(minutes=30)
    assert deadline.callback.path == "memwal_core.airflow.failures.tell_overdue"


@pytest.mark.parametrize("text", ["30m", "0", "-1", "nan", "1e300"])
def test_deadline_that_is_no_time_is_refused_by_its_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEADLINE_VARIABLE, text)
    with pytest.raises(InvalidRequestError, match=DEADLINE_VARIABLE):
        deadlines()


def test_links_lead_to_the_page_of_the_table_and_to_its_runbook() -> None:
    task: Any = SimpleNamespace(item={"table": "or/ders & co", "label": "x"})
    key: Any = None
    assert TablePageLink().get_link(task, ti_key=key).endswith("/memwal/table?name=or%2Fders+%26+co")
    assert RunbookLink().get_link(task, ti_key=key).endswith("/memwal/runbook?name=job-failures&table=or%2Fders+%26+co")
    failed = InvalidRequestError("it went wrong", remedy="follow docs/runbooks/duplicate-keys.md")
    ran: Any = SimpleNamespace(get_template_context=lambda: {"exception": failed})
    assert "runbook?name=duplicate-keys&" in RunbookLink().get_link(task, ti_key=ran)
    several: Any = SimpleNamespace(items=[{"table": "orders", "label": "x"}, {"table": "people", "label": "y"}])
    assert TablePageLink().get_link(several, ti_key=key).endswith("/memwal/")
    fleet: Any = SimpleNamespace()
    assert TablePageLink().get_link(fleet, ti_key=key).endswith("/memwal/")


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", "1e20"])
@pytest.mark.parametrize("may_be_none", [True, False])
def test_time_that_nothing_can_wait_for_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, text: str, may_be_none: bool
) -> None:
    """Before, DAGs did not load, and did not say why, or each of their runs failed at once."""
    monkeypatch.setenv("MAINTENANCE_LEASE_WAIT_S", text)
    with pytest.raises(InvalidRequestError, match="MAINTENANCE_LEASE_WAIT_S"):
        time_of("MAINTENANCE_LEASE_WAIT_S", 1800, may_be_none=may_be_none)


def test_time_of_zero_is_taken_where_it_means_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINTENANCE_RUN_TIMEOUT_S", "0")
    with pytest.raises(InvalidRequestError, match="above 0"):
        time_of("MAINTENANCE_RUN_TIMEOUT_S", 1800)
    assert time_of("MAINTENANCE_RUN_TIMEOUT_S", 1800, may_be_none=True) == timedelta(0)


@pytest.mark.parametrize(("text", "waits"), [("1", True), ("yes", True), ("TRUE", True), ("off", False), ("", False)])
def test_approval_is_demanded_however_that_is_written(monkeypatch: pytest.MonkeyPatch, text: str, waits: bool) -> None:
    """Whoever wrote 1 or yes was not asked: runs deleted."""
    monkeypatch.setenv("MAINTENANCE_GC_APPROVAL", text)

    assert ("approve" in job_dag(GcRequest, __file__).task_ids) is waits


@pytest.mark.parametrize("variable", ["MAINTENANCE_GC_APPROVAL", "MAINTENANCE_POOLS"])
def test_switch_that_is_neither_on_nor_off_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "enabled")

    with pytest.raises(InvalidRequestError, match=f"{variable} says neither true nor false"):
        job_dag(GcRequest, __file__)


@pytest.mark.parametrize(
    "text", ["nonsense", "*/5 * * *", "61 * * * *", "@often", "@continuous", " ", "0 0 30 2 *", "0 0 * * * 0 2020"]
)
def test_schedule_that_is_none_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Airflow said that a DAG had a bad cron expression, and not where it came from."""
    monkeypatch.setenv(SCHEDULE_VARIABLE, text)

    with pytest.raises(InvalidRequestError, match="MAINTENANCE_SCHEDULE is no schedule"):
        schedule()


@pytest.mark.parametrize("text", ["*/5 * * * *", "0 0 * * MON#1", "@hourly", "@quarterly", "@once", ""])
def test_schedule_is_a_cron_expression_or_a_preset_of_airflow(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(SCHEDULE_VARIABLE, text)

    assert schedule() == (text or None)
