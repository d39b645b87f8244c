"""What executors can reach, and whether they have the package."""

from __future__ import annotations

import re

from memwal_core.base_table import BaseTable
from memwal_core.errors import BareExecutorError, InvalidRequestError
from memwal_core.storage import StoreKind

_MISSING = re.compile(r"^(?:ModuleNotFoundError|ImportError): (?:No module named )?'?([\w.]+)", re.MULTILINE)
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: (\S+),")
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
    """Return the error of a failure of Spark that an executor's Python, asked for as ``python``, causes; else None."""
    text = str(error)
    missing, other, found = _MISSING.search(text), _OTHER_PYTHON.search(text), _HOST.search(text)
    host = found[1] if found else "unknown"
    if other:
        return BareExecutorError(
            "an executor's Python has another minor version than the driver's",
            remedy="let PYSPARK_PYTHON name the same version for the driver and all executors, or give Spark a packed "
            "environment; docs/spark.md has the steps",
            executor=other[1],
            driver=other[2],
            python=python,
            host=host,
        )
    return bare_executor(missing[1], python, host, missing[0]) if missing else None
