"""The byte form of a job's history, and the history of a table as an Arrow table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC

import pyarrow as pa

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger.history import History, RunOutcome, RunRecord
from memwal_core.errors import CorruptionError
from memwal_core.format.document import as_moment, as_number, as_text, encode_document, parse_document

_TIME = pa.timestamp("us", tz="UTC")

RUNS_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("job", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("holder", pa.string(), nullable=False),
        pa.field("fencing_token", pa.uint64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("started", _TIME, nullable=False),
        pa.field("ended", _TIME),
        pa.field("error", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("facts", pa.string(), nullable=False),
    ]
)
"""One row per run; ``facts`` is JSON text."""


def encode_history(history: History, commit_id: bytes) -> bytes:
    """Return the bytes of one version of a history.

    ``commit_id`` marks the attempt, so that equal reports of two processes differ in bytes.
    """
    document = {
        "commit_id": commit_id.hex(),
        "forgotten": history.forgotten,
        "runs": [run_to_dict(run) for run in history.runs],
    }
    # Facts that JSON cannot express become text, so that no run goes unrecorded because of them.
    return encode_document(_finite(document))


def decode_history(data: bytes, key: JobKey, path: str) -> History:
    """Read one version of a history; ``path`` is for the error. Only the ledger depends on a corrupt history."""
    try:
        document = parse_document(data)
        runs = tuple(_run_from_dict(run, key) for run in document["runs"])
        return History(key, runs, as_number(document["forgotten"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            "the history of a job cannot be read",
            remedy="move its directory away; the next run begins a new history",
            path=path,
            problem=str(error),
        ) from error


def run_to_dict(run: RunRecord) -> dict[str, object]:
    """Return a run as JSON-able values."""
    return {
        "job": run.key.job,
        "scope": run.key.scope,
        "run_id": run.run_id,
        "holder": run.holder,
        "fencing_token": run.fencing_token,
        "outcome": run.outcome.value,
        "started": run.started.astimezone(UTC).isoformat(),
        "ended": run.ended.astimezone(UTC).isoformat() if run.ended is not None else None,
        "error": run.error,
        "verdict": run.verdict,
        "facts": dict(run.facts),
    }


def runs_table(table_uri: str, runs: Sequence[RunRecord]) -> pa.Table:
    """Return runs as an Arrow table (``RUNS_SCHEMA``), one row each in this order."""
    rows = [{**run_to_dict(run), "table": table_uri, "facts": json.dumps(dict(run.facts), default=str)} for run in runs]
    for row, run in zip(rows, runs, strict=True):
        row.update(started=run.started, ended=run.ended)
    return pa.Table.from_pylist(rows, schema=RUNS_SCHEMA)


def _finite(value: object) -> object:
    """Return a value with text in place of the numbers that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _run_from_dict(found: dict[str, object], key: JobKey) -> RunRecord:
    ended, facts = found["ended"], found["facts"]
    if not isinstance(facts, dict):
        raise TypeError("facts must be an object")
    return RunRecord(
        key=key,
        run_id=as_text(found["run_id"]),
        holder=as_text(found["holder"]),
        started=as_moment(found["started"]),
        fencing_token=as_number(found["fencing_token"]),
        ended=as_moment(ended) if ended is not None else None,
        outcome=RunOutcome(as_text(found["outcome"])),
        facts=facts,
        error=as_text(found["error"]),
        verdict=as_text(found["verdict"]),
    )
