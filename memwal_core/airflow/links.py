"""Links of our tasks in Airflow: to the page of their table, and to the runbook of what failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from memwal_core.airflow.failures import runbook_of, tables_of_task

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class TablePageLink(BaseOperatorLink):
    """The status page: of the table that the task works on, or of all tables if it works on several."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; the worker asks when the task has ended."""
        table = _only_table(operator)
        return page_address(f"table?{urlencode({'name': table})}" if table else "")


class RunbookLink(BaseOperatorLink):
    """The runbook that the failure of the task names, else the one about jobs that fail; beside the table."""

    name = "Runbook"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address; the worker asks when the task has ended, with the instance that it ran as its key."""
        table = _only_table(operator)
        asked: Callable[[], Mapping[str, object]] = getattr(ti_key, "get_template_context", dict)
        name = runbook_of(asked().get("exception")).removesuffix(".md")
        return page_address(f"runbook?{urlencode({'name': name, 'table': table})}" if table else "")


def _only_table(operator: BaseOperator) -> str | None:
    tables = tables_of_task(operator)
    return tables[0] if len(tables) == 1 else None


def page_address(path: str) -> str:
    """Return an address of the status page, as browsers reach Airflow."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/memwal/{path}"
