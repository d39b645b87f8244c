"""Extras of the package: what to install where an optional package is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memwal_core.errors import InvalidRequestError

EXTRA_OF = {
    "airflow": "airflow",
    "boto3": "s3",
    "botocore": "s3",
    "fastapi": "airflow",
    "great_expectations": "quality",
    "jinja2": "airflow",
    "markdown_it": "airflow",
    "pandas": "spark",
    "py4j": "spark",
    "pyspark": "spark",
    "rich": "cli",
    "typer": "cli",
}
"""Top-level module -> the extra that brings it."""


@contextmanager
def extras_named() -> Iterator[None]:
    """Say which extra is missing, for imports that need one.

    Raises:
        InvalidRequestError: An optional package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise InvalidRequestError(
            "this needs a package that is not installed",
            remedy=f'run `pip install "memwal-core[{extra}]"`',
            package=error.name,
        ) from error
