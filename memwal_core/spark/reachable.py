"""What executors can reach, and whether they have the package."""

from __future__ import annotations

import re

from memwal_core.base_table import BaseTable
from memwal_core.errors import BareExecutorError, InvalidRequestError
from memwal_core.storage import StoreKind

_MISSING = re.compile(r"^(?:ModuleNotFoundError|ImportError): (?:No module named )?'?([\w.]+)", re.MULTILINE)
_HOST = re.compile(r"\(TID \d+\) \(([^ )]+) executor")


def require_reachable(table: BaseTable) -> None:
    """Return if other processes can open the table by its address.

    Raises:
        InvalidRequestError: The table lives in this process's memory.
    """
    if table.store.kind is StoreKind.MEMORY:
        raise InvalidRequestError(
            "executors cannot reach a table in the memory of another process",
            remedy="use a path or an object store that all executors reach",
            table=table.uri,
        )


def bare_executor(missing: str | None, python: str, host: str, cause: str) -> BareExecutorError:
    """Return the error that says so, from what it lacks, its Python, where it runs, and what Python says."""
    return BareExecutorError(
        "an executor cannot import what the job needs",
        remedy="install memwal-core on every executor for the Python that is named, or give Spark a packed "
        "environment; docs/spark.md has the steps; a library that cannot be mapped needs more memory",
        missing=missing,
        python=python,
        host=host,
        cause=cause,
    )


def bare_executor_behind(error: Exception, python: str) -> BareExecutorError | None:
    """Return that error if a failure of Spark comes from one whose Python is ``python``; else None."""
    text = str(error)
    missing, host = _MISSING.search(text), _HOST.search(text)
    return bare_executor(missing[1], python, host[1] if host else "unknown", missing[0]) if missing else None
