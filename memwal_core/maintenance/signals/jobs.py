"""Signals that come from what jobs left behind: the ledger, leases, and the report of the checks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseStore
from memwal_core.maintenance.ledger import Ledger, RunOutcome, RunRecord
from memwal_core.maintenance.signals.judge import Reading
from memwal_core.maintenance.signals.signal import Signal
from memwal_core.storage.layout import quality_result_path
from memwal_core.storage.protocol import ObjectStore

MERGED_BYTES_FACT = "bytes"
"""Fact of a merge run: Arrow bytes of the generations that it took on."""

PEAK_MEMORY_FACT = "peak_memory_bytes"
"""Fact of a run: the most memory that its process ever held."""

MEMORY_LIMIT_FACT = "memory_limit_bytes"
"""Fact of a run: what its process may hold."""

DUPLICATES_FACT = "duplicate_keys"
"""Fact of a verification: rows whose primary key occurs in another row, too."""

VERIFY = JobKey("verify")
"""The proof after a merge, as the ledger knows it."""

_RATE_RUNS = 10
"""Merges whose rate counts."""

_SHORTEST_S = 0.001


def job_readings(ledger: Ledger) -> Iterator[Reading]:
    """Read failures in a row and peak memory of every job.

    Raises:
        UnavailableError: Storage failed.
    """
    for key in ledger.known_keys():
        yield Reading(Signal.JOB_FAILURES, ledger.may_run(key).failures, str(key))
        ended = [run for run in _runs(ledger, key) if run.has_ended]
        if ended and (share := _memory_share(ended[-1])) is not None:
            yield Reading(Signal.PEAK_MEMORY, share, str(key))


def drain_reading(ledger: Ledger, waiting_bytes: int) -> Reading | None:
    """Compare what waits with what the last merges took on per second of their work.

    Args:
        ledger: Job histories.
        waiting_bytes: Size of the flushed MemTables that wait.

    Returns:
        None if no remembered merge says what it took on, which is so before the first.

    Raises:
        UnavailableError: Storage failed.
    """
    sized = [
        (run.facts.get(MERGED_BYTES_FACT), (run.ended - run.started).total_seconds())
        for run in _runs(ledger, JobKey("merge"))
        if run.ended is not None
    ][-_RATE_RUNS:]
    merged = [(size, seconds) for size, seconds in sized if isinstance(size, int) and size > 0]
    if not merged:
        return None
    rate = sum(size for size, _ in merged) / max(sum(seconds for _, seconds in merged), _SHORTEST_S)
    return Reading(Signal.DRAIN_TIME, waiting_bytes / rate, f"at the rate of the last {len(merged)} merges")


def stuck_readings(leases: LeaseStore, ledger: Ledger, ttl_s: float, now: datetime) -> Iterator[Reading]:
    """Read for each lease in somebody's hands how long ago it was renewed.

    A job renews its lease only while it completes work, and one that died does not renew it at all.
    A lease whose run has reported its end is not counted: it only was not given back.

    Raises:
        UnavailableError: Storage failed.
    """
    for key in leases.known_keys():
        try:
            stored = leases.read(key)
        except CorruptionError:
            continue  # The doctor's concern; it says nothing about time.
        if stored is None or stored.document.released:
            continue
        document = stored.document
        if any(run.fencing_token == document.fencing_token and run.has_ended for run in _runs(ledger, key)):
            continue
        renewed = document.expires_at - timedelta(seconds=ttl_s)
        yield Reading(Signal.STUCK_JOB, max(0.0, (now - renewed).total_seconds()), f"{key} of {document.holder}")


def check_readings(store: ObjectStore, ledger: Ledger) -> Iterator[Reading]:
    """Read what the newest checks after a merge, and the newest proof of a merge, found.

    Raises:
        UnavailableError: Storage failed.
    """
    try:
        newest = json.loads(store.get(quality_result_path("after")))
        yield Reading(Signal.CHECK_FAILED, float(newest["failed"]), f"version {newest['version']}")
        ended = datetime.fromisoformat(newest["ended_at"])
        repeated = sum(each.get("count", 0) for each in newest["results"] if each["check"] == "key_unique")
    except ObjectNotFoundError:
        ended, repeated = None, None
    except (ValueError, KeyError, TypeError, AttributeError):
        yield Reading(Signal.CHECK_FAILED, 1, "the newest report cannot be read")
        ended, repeated = None, None
    proofs = [run for run in _runs(ledger, VERIFY) if run.ended is not None and DUPLICATES_FACT in run.facts]
    proof = proofs[-1] if proofs else None
    if proof is not None and proof.ended is not None and (ended is None or proof.ended > ended):
        found = proof.facts[DUPLICATES_FACT]
        if isinstance(found, int):
            yield Reading(Signal.DUPLICATE_KEYS, found, f"proof of the merge, {proof.holder}")
    elif repeated is not None:
        yield Reading(Signal.DUPLICATE_KEYS, repeated, "check key_unique")


def _runs(ledger: Ledger, key: JobKey) -> Sequence[RunRecord]:
    try:
        return [run for run in ledger.history(key).runs if run.outcome is not RunOutcome.NOTHING_TO_DO]
    except CorruptionError:
        return ()  # The ledger must never keep anybody from seeing the rest.


def _memory_share(run: RunRecord) -> float | None:
    peak, limit = run.facts.get(PEAK_MEMORY_FACT), run.facts.get(MEMORY_LIMIT_FACT)
    if not isinstance(peak, int) or not isinstance(limit, int) or limit <= 0:
        return None
    return round(peak / limit, 4)
