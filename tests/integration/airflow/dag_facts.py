"""Run in a process of its own: loads the DAGs without Lance, Arrow and Spark, and prints what they are as JSON.

Reads from stdin a list of run configurations and prints, among the rest, what is wrong with each.
"""

from __future__ import annotations

import copy
import importlib
import json
import logging
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from airflow.models import DagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, ParamValidationError
from airflow.sdk.execution_time.context import OutletEventAccessors

assert SparkSubmitOperator  # imported so that its time does not count as ours

ONLY_ON_WORKERS = {"lance", "pyarrow", "pyspark", "numpy", "pandas", "datafusion", "great_expectations"}
LOADED_BY_AIRFLOW = ONLY_ON_WORKERS & set(sys.modules)


class OnlyOnWorkers:
    """Refuses what need not be installed where DAGs are parsed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ONLY_ON_WORKERS:
            raise ModuleNotFoundError(name)


class OurError(Exception):
    exit_code = 5
    facts = {"table": "orders", "region_id": "1c0c1b90"}  # noqa: RUF012


class FencedError(OurError):
    pass


class Alerts(logging.Handler):
    """Keeps what would reach whoever is on call."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")


TAIL = """
Last spark-submit output:
INFO memwal.jobs.merge: merge ended [outcome=blocked]
error: some regions cannot be merged [regions={'1c0c1b90-0fbc-49c1-99ed-67223e52e103': 'blocked: hole'}] next: \
follow docs/runbooks/generation-hole.md
INFO ShutdownHookManager: Shutdown hook called"""
ITEM = {"label": "orders: job 1 of 1", "table": "orders"}


def task_given(**fields):
    """Return a task as Airflow hands it to callbacks: with what its fields were rendered to."""
    return type("Task", (), fields)()


def alert_for(exception, task=None, **params):
    alerts = Alerts()
    logging.getLogger("memwal.alerts").addHandler(alerts)
    instance = type("Instance", (), {"dag_id": "memwal_merge", "task_id": "merge"})()
    failures.tell_failure({"exception": exception, "params": params, "ti": instance, "task": task})
    return alerts.lines


def wrong_with(dag, configuration):
    params = copy.deepcopy(dag.params)
    try:
        params.update(configuration)
        params.validate()
    except ParamValidationError as error:
        return str(error)
    return None


def form_field(param):
    return {"value": None, **param.dump(), **param.schema}


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value] if value else []


def loaded_plugins():
    """Return what Airflow loads, and what it cannot: from a cache from Airflow 3.2 on, from variables before."""
    plugins_manager.ensure_plugins_loaded()
    cached = getattr(plugins_manager, "_get_plugins", None)
    return cached() if cached else (plugins_manager.plugins, plugins_manager.import_errors)


def plugins_without_folder():
    """What an Airflow loads that has installed the package and copied nothing."""
    for module in ("memwal_page", "memwal_core.airflow.page"):
        sys.modules.pop(module, None)
    importlib.reload(plugins_manager)
    with TemporaryDirectory() as empty:
        settings.PLUGINS_FOLDER = empty
        plugins, errors = loaded_plugins()
    return [[plugin.name for plugin in plugins], errors]


def fails_at_once(body):
    """Whether what a task executes is tried no more where that is in vain."""
    while body is not None and body.__code__.co_name != "failing_at_once":
        body = getattr(body, "__wrapped__", None)
    return body is not None


def bodies_of(task, kind):
    """Return what is executed: the function of a task of Python, of ours also what goes on after waiting."""
    if hasattr(task, "python_callable"):
        return [task.python_callable]
    return [getattr(kind, name) for name in ("execute", "resume") if hasattr(kind, name)]


def task_facts(task):
    kind = task.operator_class if task.is_mapped else type(task)
    return {
        "owner": task.owner,
        "operator": kind.__name__,
        "may_use_spark": issubclass(kind, SparkWork),
        "retries": task.retries,
        "backoff": task.retry_exponential_backoff,
        "fails_at_once": all(map(fails_at_once, bodies_of(task, kind))),
        "doc": task.doc_md,
        "trigger_rule": task.trigger_rule.value,
        "upstream": sorted(task.upstream_task_ids),
        "at_once": task.max_active_tis_per_dagrun,
        "pool": task.pool,
        "priority": task.priority_weight * (1 + len(task.get_flat_relative_ids())),  # by Airflow's rule "downstream"
        "ends": task.execution_timeout.total_seconds() if task.execution_timeout else None,
        "is_setup": task.is_setup,
        "is_teardown": task.is_teardown,
        "map_index": task.map_index_template if task.is_mapped or task.get_closest_mapped_task_group() else "-",
        "outlets": [asset.name for asset in task.outlets],
        "tells": [callback.__name__ for callback in as_list(task.on_failure_callback)],
    }


folder = Path(sys.argv[1])
sys.path.append(str(folder))
sys.meta_path.insert(0, OnlyOnWorkers())
began = time.process_time()  # not the clock: other processes must not count
bag = DagBag(folder)
seconds = time.process_time() - began
configurations = json.load(sys.stdin)

from airflow import plugins_manager, settings  # noqa: E402

from memwal_core.airflow import failures  # noqa: E402
from memwal_core.airflow.operators.spark import SparkWork  # noqa: E402

_table_of = failures._table_of
message = "Cannot execute: spark-submit ['jobs/merge.py']. Error code is: {}."
given_up = {
    **{str(code): failures.reason_to_give_up(AirflowException(message.format(code))) for code in (1, 2, 3, 4, 5)},
    "error of ours": failures.reason_to_give_up(OurError("damaged")),
    "of a Spark job": failures.reason_to_give_up(AirflowException(message.format(5) + TAIL)),
    "fenced": failures.reason_to_give_up(FencedError()),
    "anything else": failures.reason_to_give_up(OSError("connection reset")),
}

facts = {
    "alerts": [
        *alert_for(OurError("a generation is missing; next: follow docs/runbooks/generation-hole.md")),
        *alert_for(AirflowException(message.format(4)), table="people"),
        *alert_for(AirflowException(message.format(5) + TAIL), task=task_given(item=ITEM)),
        *alert_for(None, table="people"),
        *alert_for(OSError("x"), table="a\nERROR maintenance failed [table=b, \u2028" + "x" * 5000),
    ],
    "tables_of_alerts": [
        _table_of({"params": {"table": None}, "task": task})
        for task in (
            task_given(item=ITEM),
            task_given(items=[ITEM, ITEM, {"table": "people"}]),
            task_given(op_args=([ITEM], [None]), op_kwargs={}),
            task_given(op_args=(), op_kwargs={"table": ITEM, "followed": None}),
            # What a task that asks for its context was called with, as Airflow leaves it in the task.
            task_given(op_args=(), op_kwargs={"table": ITEM, "outlet_events": OutletEventAccessors()}),
            task_given(item=None, table=ITEM),
            task_given(op_args=[], op_kwargs={}),
        )
    ],
    "seconds": seconds,
    "import_errors": bag.import_errors,
    "given_up": given_up,
    "jobs": bag.dags["memwal_merge"].task_dict["work"].partial_kwargs["jobs_folder"],
    "loaded": sorted((ONLY_ON_WORKERS & set(sys.modules)) - LOADED_BY_AIRFLOW),
    "loaded_by_airflow": sorted(LOADED_BY_AIRFLOW),
    "exit_codes": [failures.WRONG_INPUT, failures.NEEDS_A_HUMAN],
    "fenced": failures.FENCED,
    "plugins": {
        "names": sorted(plugin.name for plugin in loaded_plugins()[0]),
        "errors": loaded_plugins()[1],
        "of_the_package": plugins_without_folder(),
        "loose": sorted({"hook", "triggers", "job_dag", "failures", "params"} & set(sys.modules)),
    },
    "wrong": [wrong_with(bag.dags["memwal_merge"], configuration) for configuration in configurations],
    "dags": {
        dag.dag_id: {
            "doc": dag.doc_md,
            "description": dag.description,
            "tags": sorted(dag.tags),
            "at_once": dag.max_active_runs,
            "ends": dag.dagrun_timeout.total_seconds() if dag.dagrun_timeout else None,
            "schedule": sorted(asset.name for asset in dag.schedule)
            if isinstance(dag.schedule, list)
            else dag.schedule,
            "dry_run": dag.params.get("dry_run", None),
            "params": {name: form_field(dag.params.get_param(name)) for name in dag.params},
            "tasks": {task.task_id: task_facts(task) for task in dag.tasks},
        }
        for dag in bag.dags.values()
    },
}
print("FACTS " + json.dumps(facts))
