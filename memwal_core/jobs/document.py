"""A job as one JSON document: how it is handed to another process."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.catalog import parse_request
from memwal_core.jobs.request import JobRequest
from memwal_core.settings.similar import problem_of

DOCUMENT_VARIABLE = "MAINTENANCE_JOB"
"""Environment variable that holds a document, or ``@FILE``."""

MAX_INLINE_BYTES = 100_000
"""Linux limits one argument, and one variable, to 128 KiB."""


class JobDocument(BaseModel):
    """One job on one table, for one process.

    Attributes:
        request: Values of the job's request that differ from their defaults.
        storage_options: Of the object store under pylance's names. No secrets: those come from the environment.
        holder: Who runs it; made up if empty.
        ticket: The lease to work under; the job takes its own if empty.
        ok_when_nothing: Exit with 0, not 3, if there is nothing to do.
        ok_when_blocked: Exit with 0, not 5, if the report says that a person is needed: its reader acts on it.
        ok_when_partial: Exit with 0, not 6, if damaged regions were left out: their signal tells people, no scheduler.
        report: File for the report as JSON, ``-`` for standard output; empty: none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    job: str = ""
    uri: str = Field(min_length=1)
    request: dict[str, Any] = Field(default_factory=dict)
    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    holder: str = ""
    ticket: str = ""
    ok_when_nothing: bool = False
    ok_when_blocked: bool = False
    ok_when_partial: bool = False
    report: str = ""

    def parsed(self) -> JobRequest:
        """Return the request.

        Raises:
            InvalidRequestError: There is no such job, or a value does not fit.
        """
        return parse_request(self.job, self.request)

    def to_text(self) -> str:
        """Return the document."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True))


def parse_job(text: str) -> JobDocument:
    """Read a document.

    Raises:
        InvalidRequestError: It is not JSON, or not a job.
    """
    try:
        return JobDocument.model_validate_json(text)
    except ValidationError as error:
        problems = {
            ".".join(map(str, each["loc"])) or "document": problem_of(each, JobDocument.model_fields)
            for each in error.errors()
        }
        raise InvalidRequestError(
            "the job document is not valid",
            remedy='give one JSON object, for example {"uri": "s3://bucket/table", "request": {"dry_run": true}}',
            problems=problems,
        ) from error


@contextmanager
def handed_over(text: str) -> Iterator[str]:
    """Yield what ``MAINTENANCE_JOB`` says of a document: all of it, or ``@FILE`` of one that only this user reads."""
    if len(text.encode()) <= MAX_INLINE_BYTES:
        yield text
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="memwal-job-", suffix=".json") as file:
        file.write(text)
        file.flush()
        yield f"@{file.name}"


def load_document(argument: str) -> JobDocument:
    """Read the document that a process was given.

    Args:
        argument: The JSON itself, ``@FILE``, ``-`` for standard input, or empty for ``MAINTENANCE_JOB``.

    Raises:
        InvalidRequestError: There is none, or it is not valid.
    """
    if argument == "-":
        return parse_job(sys.stdin.read())
    text = argument or os.environ.get(DOCUMENT_VARIABLE, "")
    if text.startswith("@"):
        text = _content(text[1:])
    if not text:
        raise InvalidRequestError(
            "no job document was given", remedy=f"give it as argument, as @FILE, or in {DOCUMENT_VARIABLE}"
        )
    return parse_job(text)


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(
            "the file of the job document cannot be read", remedy="correct the path", path=path, problem=str(error)
        ) from error
