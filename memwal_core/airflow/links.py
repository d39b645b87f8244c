"""Links of our tasks in Airflow: to the page of their table, and to the runbook of what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from memwal_core.airflow.failures import table_of_task

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class TablePageLink(BaseOperatorLink):
    """The status page: of the table that the task works on, or of all tables."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; the worker asks when the task has ended."""
        table = table_of_task(operator)
        return page_address(f"table?{urlencode({'name': table})}" if table else "")


class RunbookLink(BaseOperatorLink):
    """The page about jobs that fail, beside the table."""

    name = "Runbook"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the address; the worker asks when the task has ended."""
        table = table_of_task(operator)
        return page_address(f"runbook?{urlencode({'name': 'job-failures', 'table': table})}" if table else "")


def page_address(path: str) -> str:
    """Return an address of the status page, as browsers reach Airflow."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/memwal/{path}"
