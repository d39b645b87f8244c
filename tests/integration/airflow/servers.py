"""Airflow's servers as a user asks them, over the REST API and the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from packaging.version import Version

from demo.stack.stack import Stack
from memwal_core.clock import SystemClock
from testkit.processes.platform import AirflowClient
from tests.integration.telemetry.collector import Collector

CLOCK = SystemClock()
RETRIES = 1

REGISTRY = """
[[include]]
pattern = '{root}/*'

[[tables]]
name = 'cycle'
uri = '{root}/cycle.lance'

[[sources]]
name = 'landing'
address = '{root}/landing'
format = 'csv'
"""

LAKES = """
[[tables]]
name = 'lake'
uri = 's3://bucket/lake.lance'
connection = 'lake'

[[tables]]
name = 'broken'
uri = 's3://bucket/broken.lance'
connection = 'broken'
"""


AIRFLOW = Version(version("apache-airflow"))
IS_3_1 = Version("3.2") > AIRFLOW
"""Before 3.2 Airflow's tasks have no spans, and pieces of work that wait no names."""


def telemetry_to(address: str) -> dict[str, str]:
    """Return the environment in which Airflow sends metrics and traces to a collector."""
    told = {
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
    }
    options = {"ON": "True"}
    if IS_3_1:
        where = urlsplit(address)
        options |= {"HOST": str(where.hostname), "PORT": str(where.port)}
    return told | {
        f"AIRFLOW__{of}__OTEL_{name}": value for of in ("METRICS", "TRACES") for name, value in options.items()
    }


class Servers:
    """Airflow's servers, asked as a user."""

    def __init__(self, stack: Stack, passwords: Mapping[str, str], root: Path) -> None:
        self.address, self.root = f"{stack.address}/api/v2", root
        self.page = f"{stack.address}/memwal"
        self.clients = {name: AirflowClient(stack, name, password) for name, password in passwords.items()}

    def ask(self, method: str, path: str, body: Any = None, user: str = "admin") -> Any:
        return self.clients[user].ask(method, path, body)

    def status_of_page(self, path: str, user: str | None) -> int:
        headers = {"Authorization": f"Bearer {self.clients[user].token}"} if user is not None else {}
        try:
            with urlopen(Request(f"{self.page}/{path}", headers=headers), timeout=300) as answer:
                return int(answer.status)
        except HTTPError as error:
            error.close()
            return error.code

    def trigger(self, dag: str, **conf: Any) -> str:
        return self.clients["admin"].trigger(dag, conf)

    def run_path(self, dag: str, run: str) -> str:
        return f"dags/{dag}/dagRuns/{quote(run)}"

    def end(
        self, dag: str, run: str, seconds: float = 600, *, meanwhile: Callable[[], object] = lambda: None
    ) -> dict[str, str]:
        """Wait for the end of a run; return the state of each of its tasks, and of the run under its DAG's name."""
        until = CLOCK.monotonic() + seconds
        while (state := self.ask("GET", self.run_path(dag, run))["state"]) not in ("success", "failed"):
            assert CLOCK.monotonic() < until, (state, self.states(dag, run))
            meanwhile()
            CLOCK.sleep(1)
        return {**self.states(dag, run), dag: state}

    def states(self, dag: str, run: str) -> dict[str, str]:
        """Return the state of each task; none may have been tried again, for that would hide a failure."""
        found = self.ask("GET", f"{self.run_path(dag, run)}/taskInstances")["task_instances"]
        again = [each for each in found if each["try_number"] > each["max_tries"] - RETRIES + 1]
        assert {each["task_id"] for each in again} <= {"approve"}, again
        return {each["task_id"]: each["state"] for each in found}

    def task(self, dag: str, run: str, task: str, map_index: int = 0) -> dict[str, Any]:
        return dict(self.ask("GET", f"{self.run_path(dag, run)}/taskInstances/{task}/{map_index}"))

    def log(self, dag: str, run: str, task: str, map_index: int = 0) -> str:
        path = f"{self.run_path(dag, run)}/taskInstances/{task}/logs/1?full_content=true&map_index={map_index}"
        return json.dumps(self.ask("GET", path)["content"])

    def await_state(self, dag: str, run: str, task: str, *states: str) -> None:
        self.until(lambda: self.states(dag, run).get(task) in states)

    def settled(self, dag: str, run: str, task: str, map_index: int = -1) -> None:
        """Wait until the scheduler knows that the process of a first try has ended."""
        self.until(lambda: self.is_settled(dag, run, task, map_index))

    def is_settled(self, dag: str, run: str, task: str, map_index: int = -1, number: int = 1) -> bool:
        """Whether the scheduler has heard of the end of a try's process; a task that goes on earlier counts as lost."""
        key = f"(dag_id='{dag}', task_id='{task}', run_id='{run}', try_number={number}, map_index={map_index})"
        line = f"executor event with state success for task instance TaskInstanceKey{key}"
        return line in (self.root / "stack" / "logs" / "scheduler.log").read_text()

    def until(self, question: Callable[[], object], seconds: float = 600) -> None:
        until = CLOCK.monotonic() + seconds
        while not question():
            assert CLOCK.monotonic() < until, "it did not happen in time"
            CLOCK.sleep(0.5)

    def asks(self, run: str) -> bool:
        """Whether a collection waits for a person now."""
        found = self.ask("GET", f"{self.run_path('memwal_gc', run)}/hitlDetails")["hitl_details"]
        if not found or found[0]["response_received"]:
            return False
        task = found[0]["task_instance"]
        known = self.is_settled("memwal_gc", run, "approve", number=task["try_number"])
        return known and task["state"] in ("awaiting_input", "deferred")  # the latter before Airflow 3.3

    def answer(self, run: str, option: str, user: str = "admin") -> None:
        path = f"{self.run_path('memwal_gc', run)}/taskInstances/approve/-1/hitlDetails"
        self.ask("PATCH", path, {"chosen_options": [option], "params_input": {}}, user)

    def answer_if_asked(self, run: str, option: str) -> None:
        """Answer as a person does: also a second time, should Airflow take a quick answer for a lost task."""
        if self.asks(run):
            self.answer(run, option)

    def clear(self, dag: str, run: str, task: str) -> None:
        body = {
            "dry_run": False,
            "dag_run_id": run,
            "task_ids": [task],
            "only_failed": False,
            "include_downstream": True,
        }
        assert self.ask("POST", f"dags/{dag}/clearTaskInstances", body)["total_entries"] >= 1

    def require_span_below_its_task(self, collector: Collector, name: str) -> None:
        if IS_3_1:
            return
        self.until(lambda: collector.parents.get(name) in collector.ids)
        assert collector.ids[collector.parents[name]] == "worker.work[0]"
