"""Signals from what jobs left behind: the ledger, leases, and the report of the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from memwal_core.coordination.freeze import FreezeStore, accepted_failures
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseStore
from memwal_core.coordination.ledger import AFTER_DEATH, History, Ledger, RunOutcome, RunRecord
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.document import as_moment, as_number, as_text, parse_document
from memwal_core.format.paths import quality_result_path
from memwal_core.jobs.memory import MEMORY_LIMIT_FACT, PEAK_MEMORY_FACT
from memwal_core.jobs.merge.report import MERGED_BYTES_FACT, PARKED_FACT
from memwal_core.jobs.verify.facts import DUPLICATES_FACT, VERIFY
from memwal_core.observe.signals.judge import Reading
from memwal_core.observe.signals.signal import Signal
from memwal_core.storage.limits import MAX_NOTE_BYTES
from memwal_core.storage.protocol import ObjectStore

_RATE_RUNS = 10
"""Merges whose rate counts."""

_SHORTEST_S = 0.001

_LONGEST_LEASE_S = 25 * 3600.0
"""No setting lets a lease last longer without a renewal, its margin included."""

_TAKES_OVER = "nobody holds the lease any more: the next run of the job takes it, so run the job if none comes"


class Histories:
    """What the jobs of a table did, each history read once, however many signals are measured on it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._read: dict[JobKey, History | CorruptionError] = {}

    def of(self, key: JobKey) -> History:
        """Return the history of a job; ``CorruptionError``: it cannot be read."""
        if key not in self._read:
            try:
                self._read[key] = self.ledger.history(key)
            except CorruptionError as error:
                self._read[key] = error
        found = self._read[key]
        if isinstance(found, CorruptionError):
            raise found
        return found


def job_readings(histories: Histories) -> Iterator[Reading]:
    """Read failures in a row and peak memory of every job."""
    yield Reading(Signal.JOB_FAILURES, 0)
    for key in histories.ledger.known_keys():
        try:
            history = histories.of(key)
        except CorruptionError as error:
            yield Reading(
                Signal.JOB_FAILURES, None, f"history of {key}", evidence=_unreadable(error), remedy=error.remedy
            )
            continue
        failed, verdict = history.failures_in_a_row, histories.ledger.judge(history)
        remedy = AFTER_DEATH if failed and not failed[-1].has_ended else ""
        yield Reading(Signal.JOB_FAILURES, verdict.failures, str(key), evidence=verdict.to_dict(), remedy=remedy)
        ended = [run for run in _runs(histories, key) if run.has_ended]
        if ended and (share := _memory_share(ended[-1])) is not None:
            yield Reading(Signal.PEAK_MEMORY, share, str(key))


def drain_readings(histories: Histories, waiting_bytes: int) -> Iterator[Reading]:
    """Compare what waits with what the last merges took on per second; nothing if no remembered merge recorded that."""
    sized = [
        (run.facts.get(MERGED_BYTES_FACT), (run.ended - run.started).total_seconds())
        for run in _runs(histories, JobKey("merge"))
        if run.ended is not None
    ][-_RATE_RUNS:]
    merged = [(size, seconds) for size, seconds in sized if isinstance(size, int) and size > 0]
    if not merged:
        return
    rate = sum(size for size, _ in merged) / max(sum(seconds for _, seconds in merged), _SHORTEST_S)
    yield Reading(Signal.DRAIN_TIME, waiting_bytes / rate, f"at the rate of the last {len(merged)} merges")


def stuck_readings(leases: LeaseStore, histories: Histories, now: datetime) -> Iterator[Reading]:
    """Read how long ago each lease that is held was renewed, by the store's clock: its holder's may be wrong.

    A job renews its lease only while it completes work, and a dead one never. A lease whose last run has reported
    its end does not count: it was only not released. Nor does one that must be over, and under which no run began: a
    scheduler took it for a run that vanished.
    """
    yield Reading(Signal.STUCK_JOB, 0)
    for key in leases.known_keys():
        try:
            stored = leases.read(key)
        except CorruptionError as error:
            yield Reading(Signal.STUCK_JOB, None, f"lease of {key}", evidence=_unreadable(error), remedy=error.remedy)
            continue
        if stored is None or stored.document.released:
            continue
        document = stored.document
        own = [run for run in _known_runs(histories, key) if run.fencing_token == document.fencing_token]
        if own and own[-1].has_ended:
            continue
        renewed = leases.renewed(stored)
        age_s = max(0.0, (now - renewed).total_seconds()) if renewed is not None else None
        if age_s is None or (age_s > _LONGEST_LEASE_S and not own and _can_be_read(histories, key)):
            continue
        is_over = leases.is_over(stored)
        evidence = {"lease": "over" if is_over else "held", "run": "has no end" if own else "none began"}
        remedy = _TAKES_OVER if is_over and not own else ""
        yield Reading(Signal.STUCK_JOB, age_s, f"{key} of {document.holder}", evidence=evidence, remedy=remedy)


def parked_readings(histories: Histories) -> Iterator[Reading]:
    """Read which regions the last merge had to leave out because of lost or damaged files."""
    ended = [run for run in histories.of(JobKey("merge")).runs if PARKED_FACT in run.facts]
    parked = ended[-1].facts[PARKED_FACT] if ended else {}
    if isinstance(parked, dict) and parked:
        yield Reading(Signal.CORRUPT_MANIFEST, len(parked), "; ".join(map(str, parked.values())))


def check_readings(store: ObjectStore, histories: Histories, freezes: FreezeStore) -> Iterator[Reading]:
    """Read what the newest checks after a merge, and the newest proof of a merge, found."""
    try:
        newest = parse_document(store.get(quality_result_path("after"), MAX_NOTE_BYTES))
        yield Reading(
            Signal.CHECK_FAILED, failures_that_stand(newest, freezes), f"version {as_number(newest['version'])}"
        )
        ended = as_moment(newest["ended_at"])
        repeated = sum(as_number(each["count"]) for each in newest["results"] if each["check"] == "key_unique")
    except ObjectNotFoundError:
        ended, repeated = None, None
    except (ValueError, KeyError, TypeError, AttributeError):
        yield Reading(Signal.CHECK_FAILED, 1, "the newest report cannot be read")
        ended, repeated = None, None
    proofs = [run for run in _runs(histories, VERIFY) if run.ended is not None and DUPLICATES_FACT in run.facts]
    proof = proofs[-1] if proofs else None
    if proof is not None and proof.ended is not None and (ended is None or proof.ended > ended):
        found = proof.facts[DUPLICATES_FACT]
        if isinstance(found, int):
            yield Reading(Signal.DUPLICATE_KEYS, found, f"proof of the merge, {proof.holder}")
    elif repeated is not None:
        yield Reading(Signal.DUPLICATE_KEYS, repeated, "check key_unique")


def failures_that_stand(newest: Mapping[str, Any], freezes: FreezeStore) -> int:
    """Return how many checks of a stored report failed, except those that only report or that a person accepted.

    Raises:
        KeyError, TypeError, ValueError: It is no such report.
        CorruptionError: The maintenance record cannot be read.
    """
    if newest.get("advisory"):
        return 0
    failures = [each["failure"] for each in newest["results"] if each["result"] == "failed"]
    accepted = accepted_failures(freezes.load(), as_text(newest["basis"])) if failures else frozenset()
    return sum(each not in accepted for each in failures)


def _unreadable(error: CorruptionError) -> dict[str, object]:
    return {"problem": error.what, "path": error.facts.get("path")}


def _runs(histories: Histories, key: JobKey) -> Sequence[RunRecord]:
    """Return the runs of a job that tell what its work takes."""
    return [run for run in _known_runs(histories, key) if run.outcome is not RunOutcome.NOTHING_TO_DO]


def _known_runs(histories: Histories, key: JobKey) -> Sequence[RunRecord]:
    try:
        return histories.of(key).runs
    except CorruptionError:
        return ()  # A broken ledger must not hide the other signals.


def _can_be_read(histories: Histories, key: JobKey) -> bool:
    try:
        histories.of(key)
    except CorruptionError:
        return False
    return True


def _memory_share(run: RunRecord) -> float | None:
    peak, limit = run.facts.get(PEAK_MEMORY_FACT), run.facts.get(MEMORY_LIMIT_FACT)
    if not isinstance(peak, int) or not isinstance(limit, int) or limit <= 0:
        return None
    return round(peak / limit, 4)
