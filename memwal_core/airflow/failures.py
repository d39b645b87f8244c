"""What becomes of a failed task: which failures are tried again, and who is told of the others."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from airflow.providers.common.compat.sdk import AirflowFailException
from asgiref.sync import sync_to_async

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

RUNBOOKS = os.environ.get("MAINTENANCE_RUNBOOKS") or "docs/runbooks"
"""Where people find the runbooks: a folder or an address."""

# The same numbers and names as in memwal_core.errors; a test compares them.
WRONG_INPUT = 2
NEEDS_A_HUMAN = 5
FROZEN = 8
FENCED = "FencedError"

_alerts = logging.getLogger("memwal.alerts")
_SUBMIT_EXIT_CODE = re.compile(r"(?:Error|Kubernetes spark exit) code is: (\d+)")
_JOB_ERROR = re.compile(r"^error: (.+)$", re.MULTILINE)
_PAGE = re.compile(r"docs/runbooks/([\w-]+\.md)")
_REGION = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_LONGEST = 4000
"""Characters of a part of an alert."""

_HANDED = ("item", "items", "table")
"""What tasks are handed that names tables."""

_ANY_FAILURE = "job-failures.md"
_TOO_LONG = "stuck-job.md"


def no_vain_retries(task: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Let a task fail at once where no retry can mend what is wrong, and leave all else to its retries.

    Around what a task executes, because policies of retries exist only from Airflow 3.3 on.
    """

    @functools.wraps(task)
    def failing_at_once(*arguments: Given.args, **named: Given.kwargs) -> Returned:
        try:
            return task(*arguments, **named)
        except AirflowFailException:
            raise  # It was decided further in.
        except Exception as error:
            if reason := reason_to_give_up(error):
                raise AirflowFailException(reason) from error
            raise

    return failing_at_once


def reason_to_give_up(exception: BaseException) -> str | None:
    """Return why no retry can mend a failure; None where one may.

    Knows the exit code of a Spark job from the provider's exception, and of a Python task from the error itself.
    """
    code = exit_code_of(exception)
    if code == WRONG_INPUT:
        return f"correct the input and trigger the run again: {verdict_of(exception)}"
    if any(kind.__name__ == FENCED for kind in type(exception).__mro__):
        return "fenced: somebody else has the lease, and does the work"
    if code == FROZEN:
        return f"a person must thaw the table: {verdict_of(exception)}"
    if code == NEEDS_A_HUMAN:
        # Of a fenced Spark job, too: only its own words tell it from one that found damage.
        return f"no retry can mend this: {verdict_of(exception)}"
    return None


def exit_code_of(exception: BaseException) -> int | None:
    """Return the exit code that a failure stands for, if it says one."""
    code = getattr(exception, "exit_code", None)
    if isinstance(code, int):
        return code
    # Of a driver on Kubernetes its own stands last: spark-submit ends with 0 there.
    found = _SUBMIT_EXIT_CODE.findall(str(exception))
    return int(found[-1]) if found else None


def tell_failure(context: Mapping[str, Any]) -> None:
    """Say what on-call needs: table, region, verdict, runbook."""
    exception, instance = cause_of(context.get("exception")), context.get("ti")
    facts = getattr(exception, "facts", {})
    verdict = verdict_of(exception)
    _tell(
        "maintenance failed",
        {
            "table": facts.get("table") or _table_of(context) or "see the log of the task",
            "region": facts.get("region_id") or ", ".join(dict.fromkeys(_REGION.findall(verdict))) or "-",
            "verdict": verdict,
            "runbook": f"{RUNBOOKS}/{runbook_of(exception)}",
            "dag": getattr(instance, "dag_id", "-"),
            "task": getattr(instance, "task_id", "-"),
        },
        context,
    )


def tell_timed_out(context: Mapping[str, Any]) -> None:
    """Say that a run was ended because it took too long: Airflow skips its tasks, whose failures nobody is told of."""
    if context.get("reason") != "timed_out":
        return  # The task that failed has told.
    _tell_too_long(
        _table_of(context),
        f"Airflow ended the run {context.get('run_id', '-')}: it took longer than a run may",
        getattr(context.get("dag"), "dag_id", "-"),
        context,
    )


async def tell_overdue(context: Mapping[str, Any], seconds: float) -> None:
    """Say that a run has not ended in the time that the operator allows it; Airflow's triggerer does."""
    run = context.get("dag_run") or {}
    # Notifiers may wait, and ask Airflow for connections through the triggerer's own event loop.
    await sync_to_async(_tell_too_long)(
        (run.get("conf") or {}).get("table"),
        f"the run {run.get('dag_run_id', '-')} has not ended in {seconds:g} s",
        run.get("dag_id", "-"),
        context,
    )


def _tell_too_long(table: str | None, verdict: str, dag: str, context: Mapping[str, Any]) -> None:
    _tell(
        "maintenance takes too long",
        {
            "table": table or "see the run",
            "region": "-",
            "verdict": verdict,
            "runbook": f"{RUNBOOKS}/{_TOO_LONG}",
            "dag": dag,
            "task": "-",
        },
        context,
    )


def _tell(what: str, facts: Mapping[str, object], context: Mapping[str, Any]) -> None:
    """Log an alert, where log shippers look for the logger's name, and hand it to the operator's notifiers."""
    alert = {name: _line(value) for name, value in facts.items()}
    _alerts.error("%s [%s]", what, ", ".join(f"{name}={value}" for name, value in alert.items()))
    from memwal_core.airflow.notifying import notify

    notify({"what": what, **alert}, context)


def cause_of(exception: object) -> object:
    """Return what failed, of a failure for good as well."""
    return (exception.__cause__ or exception) if isinstance(exception, AirflowFailException) else exception


def verdict_of(exception: object) -> str:
    """Return in one line why a task failed: of a Spark job its own words, which the provider's exception ends with."""
    exception = cause_of(exception)
    if exception is None:  # ended from outside, for example because its worker died
        return "Airflow ended the task, which said nothing itself"
    text = str(exception) or type(exception).__name__
    said = _JOB_ERROR.findall(text)
    return str(said[-1]) if said else text.partition("\n")[0]


def runbook_of(exception: object) -> str:
    """Return the file name of the runbook that a failure names, else that of the one about any failure."""
    page = _PAGE.search(verdict_of(exception))
    return page[1] if page else _ANY_FAILURE


def _line(text: object) -> str:
    """Return a text that other alerts cannot be forged with: names come from forms, reasons from jobs."""
    shown = "".join(each if each.isprintable() else " " for each in str(text)[:_LONGEST])
    return shown if len(str(text)) <= _LONGEST else f"{shown}..."


def _table_of(context: Mapping[str, Any]) -> str | None:
    """Return the tables that a task works on: from the form, else from the work that the task was given."""
    if named := (context.get("params") or {}).get("table"):
        return str(named)
    return ", ".join(tables_of_task(context.get("task"))) or None


def tables_of_task(task: object) -> tuple[str, ...]:
    """Return the tables of the work that a task was given, each once."""
    # The named arguments of a task that asks for its context are all that Airflow knows, most of it not ours to search.
    named = getattr(task, "op_kwargs", None)
    known = named if isinstance(named, Mapping) else {}
    given = [getattr(task, "op_args", None), *(getattr(task, name, None) or known.get(name) for name in _HANDED)]
    return tuple(dict.fromkeys(_tables_in(given)))


def _tables_in(given: object) -> Iterator[str]:
    if isinstance(given, Mapping):
        if isinstance(given.get("table"), str):
            yield given["table"]
        else:
            yield from _tables_in(list(given.values()))
    elif isinstance(given, list | tuple):
        for each in given:
            yield from _tables_in(each)
