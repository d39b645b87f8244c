"""Whether a table is as a cycle left it that had nothing to do: then no job looks again, and nothing is written.

A cycle that ends without work, and without having learned anything, remembers the digest of the maintenance record. The
record names the version of the table and of every region's manifest, and every job compares what it reads with it, so
that all steps of that cycle saw just that. Versions only grow. If the newest ones are still those of the record, the
table has not changed since. WALs grow without a new version: where all rows were flushed, the last entry of each WAL
tells; elsewhere the next look into WALs is soon. What depends on time alone waits an hour at most.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.coordination.freeze.document import MaintenanceRecord, encode_record
from memwal_core.coordination.freeze.memory import Memory
from memwal_core.coordination.freeze.watch import address_of, seen_table
from memwal_core.errors import MemwalError, ObjectNotFoundError
from memwal_core.format.document import as_moment, as_text, parse_document
from memwal_core.format.paths import QUIET_PATH
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.region.listing import ListedRegion, list_regions
from memwal_core.storage.limits import MAX_HINT_BYTES
from memwal_core.storage.protocol import ObjectStore

LOOK_AGAIN_S = 3600.0
"""After this time a cycle looks at a table whatever it knows of it: garbage and old versions grow old by themselves."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a cycle without work left behind.

    Attributes:
        record: Digest of the maintenance record that all its steps agreed with.
        tails: Digest of the last WAL entry of each region, all of which are flushed; empty if some are not.
        asked: Digest of what was asked for, and of the settings.
        since: When it began, in UTC.
        until: When the next cycle must look again.
    """

    record: str
    tails: str
    asked: str
    since: datetime
    until: datetime


def tails_digest(opened: OpenTable, record: str | None) -> str:
    """Return what tells the ends of all WALs from any others; empty if there is no ``record``, or too much to list."""
    if record is None:
        return ""
    try:
        return _digest_of_tails(list_regions(opened.base.store) or {})
    except MemwalError:
        return ""


def record_digest(opened: OpenTable) -> str | None:
    """Return what tells the maintenance record from any other; None if there may be work for a job whatever it says.

    That is so while there is a freeze, or a generation that is not merged, and on a table that was never looked at.
    """
    try:
        record = opened.freezes.load()
    except MemwalError:
        return None  # The jobs say what is wrong with it.
    return _digest_of(record) if record is not None and _is_settled(record) else None


def remember_quiet(context: JobContext, quiet: Quiet) -> None:
    """Leave it for the next cycle; not being able to costs nothing but that cycle."""
    document = {
        "record": quiet.record,
        "tails": quiet.tails,
        "asked": quiet.asked,
        "since": quiet.since.isoformat(),
        "until": quiet.until.isoformat(),
    }
    try:
        context.guard()
        context.base.store.put(QUIET_PATH, json.dumps(document).encode())
    except MemwalError as error:
        _log.warning("that the table is quiet is not remembered [table=%s]: %s", context.opened.uri, error)


def still_quiet(opened: OpenTable, request: MaintainRequest) -> Quiet | None:
    """Return what the last cycle left if nothing has changed since; None if a cycle must look.

    Costs a dozen requests, with one for each thousand objects below ``_mem_wal/``, and no write. Never raises.
    """
    try:
        quiet = _remembered(opened.base.store)
        if quiet is None or not _is_valid(quiet, opened) or quiet.asked != asked_digest(opened, request):
            return None
        record = opened.freezes.load()
        if record is None or not _is_settled(record) or _digest_of(record) != quiet.record:
            return None
        return quiet if _is_as_seen(opened, record.memory, quiet.tails) else None
    except MemwalError as error:
        _log.info("whether the table is quiet cannot be told [table=%s]: %s", opened.uri, error)
        return None


def _is_valid(quiet: Quiet, opened: OpenTable) -> bool:
    """Tell whether it is time to look again; the word of a cycle with another clock is not taken for longer."""
    latest = quiet.since + timedelta(seconds=LOOK_AGAIN_S)
    return quiet.since <= opened.clock.now() < min(quiet.until, latest)


def _is_as_seen(opened: OpenTable, memory: Memory, tails: str) -> bool:
    listed = list_regions(opened.base.store)
    if listed is None or (tails and tails != _digest_of_tails(listed)):
        return False
    versions = {region_id: region.version for region_id, region in listed.items()}
    if versions != {region_id: region.version for region_id, region in memory.regions.items()}:
        return False
    return seen_table(opened.base.state()) == memory.table


def asked_digest(opened: OpenTable, request: MaintainRequest) -> str:
    """Return what tells a request, the settings and the table's address from any others."""
    # Without what suites contain: they are for flushed MemTables that wait, and beside those no table is quiet.
    asked = [address_of(opened.base), request.to_json(), opened.settings.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()


def _remembered(store: ObjectStore) -> Quiet | None:
    try:
        found = parse_document(store.get(QUIET_PATH, MAX_HINT_BYTES))
        return Quiet(
            as_text(found["record"]),
            as_text(found["tails"]),
            as_text(found["asked"]),
            as_moment(found["since"]),
            as_moment(found["until"]),
        )
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        _log.warning("what the last cycle left cannot be read and is ignored [path=%s]", QUIET_PATH)
        return None


def _is_settled(record: MaintenanceRecord) -> bool:
    return not record.active and record.memory.table is not None and not _has_unmerged(record.memory)


def _has_unmerged(memory: Memory) -> bool:
    return any(
        max(region.generations, default=0) > memory.progress.get(region_id, 0)
        for region_id, region in memory.regions.items()
    )


def _digest_of(record: MaintenanceRecord) -> str:
    return hashlib.sha256(encode_record(record, b"")).hexdigest()


def _digest_of_tails(listed: Mapping[RegionId, ListedRegion]) -> str:
    tails = sorted((str(region_id), region.wal_id) for region_id, region in listed.items())
    return hashlib.sha256(json.dumps(tails).encode()).hexdigest()
