"""What background jobs did: every run with its outcome, and the pauses of jobs that keep failing.

Owns ``_mem_wal/_ledger/``. Nothing but pauses depends on it: a job runs as well without its past.
May import the register, storage and what lies below.
"""

from memwal_core.coordination.ledger.codec import RUNS_SCHEMA, run_to_dict, runs_table
from memwal_core.coordination.ledger.cooldown import RunVerdict, judge
from memwal_core.coordination.ledger.history import (
    AFTER_DEATH,
    History,
    RunEnd,
    RunOutcome,
    RunRecord,
    begin_run,
    end_run,
    runs_in,
)
from memwal_core.coordination.ledger.store import Ledger, RunInProgress

__all__ = [
    "AFTER_DEATH",
    "RUNS_SCHEMA",
    "History",
    "Ledger",
    "RunEnd",
    "RunInProgress",
    "RunOutcome",
    "RunRecord",
    "RunVerdict",
    "begin_run",
    "end_run",
    "judge",
    "run_to_dict",
    "runs_in",
    "runs_table",
]
