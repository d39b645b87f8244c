"""The ledgers of one table: record runs, and read them back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import pyarrow as pa

from memwal_core.clock import Clock
from memwal_core.coordination.job_key import JobKey, list_keys
from memwal_core.coordination.ledger.codec import decode_history, encode_history, runs_table
from memwal_core.coordination.ledger.cooldown import RunVerdict, judge
from memwal_core.coordination.ledger.history import (
    History,
    RunEnd,
    RunOutcome,
    RunRecord,
    begin_run,
    end_run,
    runs_in,
)
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    FrozenError,
    InvalidRequestError,
    MemwalError,
    StoreRefusedError,
)
from memwal_core.format.paths import LEDGER_DIRECTORY, job_directory
from memwal_core.ids import IdSource
from memwal_core.redaction import redact
from memwal_core.register import FIRST_VERSION, VersionedRegister
from memwal_core.settings import LedgerSettings
from memwal_core.storage.concurrent import run_two
from memwal_core.storage.protocol import ObjectStore

LEDGER_SUFFIX = ".json"
_APPEND_ATTEMPTS = 20

_log = logging.getLogger(__name__)


@dataclass
class RunInProgress:
    """What a run reports about itself; recorded when it ends, as ``done`` unless set otherwise.

    Attributes:
        beside_end: Called while the end is recorded, on a near store before it, unless the run failed.
    """

    outcome: RunOutcome = RunOutcome.DONE
    facts: dict[str, object] = field(default_factory=dict)
    verdict: str = ""
    beside_end: Callable[[], object] = lambda: None


class Ledger:
    """The histories of all jobs of one table, as versioned registers below ``_mem_wal/_ledger/``.

    Each version holds all remembered runs, so reading a history is one request however long it is, and their
    number is bounded (``LedgerSettings.max_runs``). Garbage collection deletes superseded versions.
    """

    def __init__(self, store: ObjectStore, ids: IdSource, *, settings: LedgerSettings, clock: Clock) -> None:
        self._store = store
        self._ids = ids
        self._settings = settings
        self._clock = clock
        self._written: dict[JobKey, tuple[History, int, bool]] = {}

    @contextmanager
    def run(self, run: RunRecord, beside_begin: Callable[[], object] = lambda: None) -> Iterator[RunInProgress]:
        """Record a run around a block of work: its beginning, and its end whatever it is.

        A ledger that cannot be written is logged and never stops a job. ``beside_begin`` is called while the beginning
        is recorded, on a near store after it; it raises nothing.
        """
        run_two(self._store.kind, lambda: self._tolerate(lambda: self.begin(run)), beside_begin)
        progress = RunInProgress()
        try:
            yield progress
        except MemwalError as error:
            outcome = _outcome_of(error)
            self._finish(run, progress, outcome, type(error).__name__, error.what)
            raise
        except Exception as error:
            self._finish(run, progress, RunOutcome.FAILED, type(error).__name__, redact(str(error)))
            raise
        except (KeyboardInterrupt, SystemExit) as error:
            self._finish(run, progress, RunOutcome.INTERRUPTED, type(error).__name__, "it was interrupted")
            raise
        finish = partial(self._finish, run, progress, progress.outcome, "", progress.verdict)
        run_two(self._store.kind, progress.beside_end, finish)

    def begin(self, run: RunRecord) -> History:
        """Record that a run begins; repeating it changes nothing."""
        return self._append(run.key, lambda history: begin_run(history, run, self._settings.max_runs), will_end=True)

    def end(self, run: RunRecord, end: RunEnd) -> History:
        """Record that a run ended; only the first report counts."""
        return self._append(run.key, lambda history: end_run(history, run, end, self._settings.max_runs))

    def history(self, key: JobKey) -> History:
        """Return the remembered runs of a key.

        Raises:
            CorruptionError: The stored history cannot be read.
        """
        return self._load(key)[0]

    def prefetch(self, key: JobKey) -> None:
        """Read the history that the next run of a key is added to; what goes wrong shows when it is."""
        with suppress(MemwalError):
            self._written[key] = self._load(key)

    def remembered(self, key: JobKey) -> History | None:
        """Return the history that this process wrote or read last, without a request; None if there is none."""
        written = self._written.get(key)
        return written[0] if written is not None else None

    def stored_at(self, key: JobKey) -> datetime | None:
        """Return when the store got the history that this process wrote or read last; None if there is none."""
        if key not in self._written:
            return None
        found = self._store.head(self._register(key).path(self._written[key][1]))
        return found.modified if found is not None else None

    def known_keys(self) -> list[JobKey]:
        """Return every key that has a history, sorted."""
        return list_keys(self._store, LEDGER_DIRECTORY)

    def histories(self, job: str | None = None) -> tuple[list[History], dict[JobKey, CorruptionError]]:
        """Return the histories of one job or of all, each read once, and why others cannot be read."""
        found, unreadable = list[History](), dict[JobKey, CorruptionError]()
        for key in self.known_keys():
            try:
                found += [self.history(key)] if job is None or key.job == job else []
            except CorruptionError as error:
                unreadable[key] = error
        return found, unreadable

    def runs(self, job: str | None = None) -> list[RunRecord]:
        """Return the remembered runs of one job or of all, the newest last.

        Raises:
            CorruptionError: A stored history cannot be read.
        """
        found, unreadable = self.histories(job)
        for error in unreadable.values():
            raise error
        return runs_in(found)

    def table(self, job: str | None = None) -> pa.Table:
        """Return the remembered runs as an Arrow table (``RUNS_SCHEMA``), the newest last."""
        return runs_table(self._store.uri, self.runs(job))

    def may_run(self, key: JobKey) -> RunVerdict:
        """Decide whether a job may run now, or pauses because it keeps failing.

        An unreadable history allows it: the ledger must never stop a healthy job.
        """
        try:
            history = self.history(key)
        except CorruptionError as error:
            _log.warning("unreadable history ignored: %s", error)
            return RunVerdict(True, "its history cannot be read")
        return self.judge(history)

    def judge(self, history: History) -> RunVerdict:
        """Decide the same by a history that was read."""
        return judge(history, self._clock.now(), self._settings)

    def _append(self, key: JobKey, change: Callable[[History], History | None], *, will_end: bool = False) -> History:
        """Store a changed history; one that the end of a run ``will_end`` needs no hint, unless the last had none."""
        register = self._register(key)
        for _ in range(_APPEND_ATTEMPTS):
            # What this process wrote last is usually still the newest; if not, the register refuses the next version.
            is_known = key in self._written
            history, version, is_hinted = self._written.pop(key) if is_known else self._load(key)
            changed = change(history)
            if changed is None:
                return history
            try:
                with_hint = not (will_end and is_hinted)
                register.create(version + 1, encode_history(changed, self._ids.commit_id()), with_hint=with_hint)
            except (ConflictError, CommitUnknownError):
                continue
            self._written[key] = changed, version + 1, with_hint
            return changed
        raise ConflictError(
            "other processes recorded runs of this job in every attempt", remedy="record it again later", key=str(key)
        )

    def _load(self, key: JobKey) -> tuple[History, int, bool]:
        """Return a history, its version, and whether the hint names it."""
        register = self._register(key)
        entry = register.latest()
        if entry is None:
            return History(key), FIRST_VERSION - 1, True
        return decode_history(entry.data, key, register.path(entry.version)), entry.version, entry.is_hinted

    def _finish(self, run: RunRecord, progress: RunInProgress, outcome: RunOutcome, error: str, verdict: str) -> None:
        end = RunEnd(self._clock.now(), outcome, dict(progress.facts), error, verdict)
        self._tolerate(lambda: self.end(run, end))

    def _tolerate(self, record: Callable[[], object]) -> None:
        try:
            record()
        except MemwalError as error:
            _log.warning("run not recorded: %s", error)

    def _register(self, key: JobKey) -> VersionedRegister:
        return VersionedRegister(self._store, job_directory(LEDGER_DIRECTORY, key.job, key.scope), LEDGER_SUFFIX)


def _outcome_of(error: MemwalError) -> RunOutcome:
    if isinstance(error, FencedError):
        return RunOutcome.FENCED
    if isinstance(error, FrozenError):
        return RunOutcome.FROZEN
    if isinstance(error, StoreRefusedError | InvalidRequestError):
        return RunOutcome.REFUSED
    if isinstance(error, ConflictError):
        return RunOutcome.CONFLICT
    return RunOutcome.BLOCKED if isinstance(error, CorruptionError) else RunOutcome.FAILED
