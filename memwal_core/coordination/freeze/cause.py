"""Why a table can be frozen, and what a person may choose to end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Choice(StrEnum):
    """How a person ends a freeze.

    - ``merge-again`` lets the recorded flushed MemTables be merged from the present progress on; of a region that
      began again, from its first one.
    - ``restore-progress`` records the progress that was seen before: what was merged is not merged again, and what
      was not yet merged is.
    - ``discard-generations`` records every generation that was flushed when the freeze began as merged; rows that are
      only there never reach the base table.
    - ``accept-copy`` makes this address the only one of the table: it was moved, or it is a copy that goes its own
      way.
    - ``accept-address`` adds this address to those of the table: it is the same table, mounted twice.
    - ``accept`` takes the table as it is now.
    """

    MERGE_AGAIN = "merge-again"
    RESTORE_PROGRESS = "restore-progress"
    DISCARD_GENERATIONS = "discard-generations"
    ACCEPT_COPY = "accept-copy"
    ACCEPT_ADDRESS = "accept-address"
    ACCEPT = "accept"


class FreezeScope(StrEnum):
    """What a cause stops: every job of the table, or the work on one region while the others go on."""

    TABLE = "table"
    REGION = "region"


class FreezeCause(StrEnum):
    """What froze a table, or one region of it."""

    BY_HAND = "by-hand"
    ADDRESS_CHANGED = "address-changed"
    TABLE_WENT_BACK = "table-went-back"
    INDEX_GONE = "index-gone"
    INDEX_MADE_ANEW = "index-made-anew"
    PROGRESS_WENT_BACK = "progress-went-back"
    PROGRESS_AHEAD = "progress-ahead"
    REGION_BEGAN_AGAIN = "region-began-again"
    REGION_WENT_BACK = "region-went-back"
    REGION_VANISHED = "region-vanished"
    DUPLICATE_KEYS = "duplicate-keys"
    CHECK_FAILED = "check-failed"
    CRITICAL_FINDING = "critical-finding"

    @property
    def facts(self) -> CauseFacts:
        """What there is to know of it."""
        return CAUSES[self]


@dataclass(frozen=True, slots=True)
class CauseFacts:
    """What there is to know of a cause.

    Attributes:
        risk: What a job could do to the table, one sentence.
        choices: Choice -> what it does here, one sentence; the first is the usual one.
    """

    summary: str
    risk: str
    choices: Mapping[Choice, str]
    runbook: str
    scope: FreezeScope = FreezeScope.TABLE


_ANEW = "rows that were overwritten, changed or deleted since could come back"
_AGAIN = "merges every recorded flushed MemTable above the present progress: right if the rows went back with it"
_RESTORE = "records the progress seen before: right if the rows of the base table stayed as they were"
_DISCARD = "never merges what was flushed when the table froze: right if the new content replaces those rows"
_AS_IT_IS = "takes the table as it is now"

CAUSES: Mapping[FreezeCause, CauseFacts] = MappingProxyType(
    {
        FreezeCause.BY_HAND: CauseFacts(
            "a person froze the table",
            "that of the reason given",
            {Choice.ACCEPT: "ends the freeze"},
            "docs/runbooks/frozen-by-hand.md",
        ),
        FreezeCause.ADDRESS_CHANGED: CauseFacts(
            "the table has another address than before: it was copied, moved or mounted elsewhere",
            "a copy could read or delete what belongs to the table that it was copied from",
            {
                Choice.ACCEPT_COPY: "makes this address the only one: the table was moved, or is a copy of its own; "
                "`memwal relocate` does so after proving its files",
                Choice.ACCEPT_ADDRESS: "adds this address: it is the same table, mounted twice",
            },
            "docs/runbooks/address-changed.md",
        ),
        FreezeCause.TABLE_WENT_BACK: CauseFacts(
            "the newest version of the table is older than one seen before, or another one with its number",
            "commits were removed, and what they merged is missing",
            {Choice.ACCEPT: _AS_IT_IS},
            "docs/runbooks/table-went-back.md",
        ),
        FreezeCause.INDEX_GONE: CauseFacts(
            "the MemWAL index is gone: the table was overwritten, restored, or its write spec was removed",
            _ANEW,
            {
                Choice.RESTORE_PROGRESS: f"once the index is back, {_RESTORE}",
                Choice.DISCARD_GENERATIONS: f"once the index is back, {_DISCARD}",
                Choice.MERGE_AGAIN: f"once the index is back, {_AGAIN}",
            },
            "docs/runbooks/progress-lost.md",
        ),
        FreezeCause.INDEX_MADE_ANEW: CauseFacts(
            "the MemWAL index was dropped and made anew, and has forgotten what was merged",
            _ANEW,
            {
                Choice.RESTORE_PROGRESS: _RESTORE,
                Choice.DISCARD_GENERATIONS: _DISCARD,
                Choice.MERGE_AGAIN: _AGAIN,
            },
            "docs/runbooks/progress-lost.md",
        ),
        FreezeCause.PROGRESS_WENT_BACK: CauseFacts(
            "merge progress went back: the table was restored, overwritten, or its index replaced",
            _ANEW,
            {
                Choice.MERGE_AGAIN: _AGAIN,
                Choice.RESTORE_PROGRESS: _RESTORE,
                Choice.DISCARD_GENERATIONS: _DISCARD,
            },
            "docs/runbooks/progress-lost.md",
        ),
        FreezeCause.PROGRESS_AHEAD: CauseFacts(
            "a region has fewer generations than are recorded as merged",
            "the next generations would be taken for merged, and collected without being merged",
            {
                Choice.MERGE_AGAIN: "merges the region from its first generation on: right if the region is a new one",
                Choice.DISCARD_GENERATIONS: "never merges what the region has now, and merges what it flushes next",
            },
            "docs/runbooks/region-began-again.md",
        ),
        FreezeCause.REGION_BEGAN_AGAIN: CauseFacts(
            "a region was deleted and began again under the same id",
            "its first generations would be taken for merged, and collected without being merged",
            {
                Choice.MERGE_AGAIN: "merges the region from its first generation on: right if the region is a new one",
                Choice.DISCARD_GENERATIONS: "never merges what the region has now, and merges what it flushes next",
                Choice.ACCEPT: "goes on as before: right if it is the same region, and only a clock was set back",
            },
            "docs/runbooks/region-began-again.md",
        ),
        FreezeCause.REGION_WENT_BACK: CauseFacts(
            "the newest manifests of a region are gone",
            "flushed MemTables that only they recorded are neither merged nor read",
            {Choice.ACCEPT: _AS_IT_IS},
            "docs/runbooks/region-went-back.md",
        ),
        FreezeCause.REGION_VANISHED: CauseFacts(
            "the directory of a region is gone, or stayed behind when Lance cloned the table",
            "its rows that were not merged are missing here",
            {
                Choice.ACCEPT: "gives the region up: what it had and was not merged is lost, or left to the original "
                "of the clone"
            },
            "docs/runbooks/region-vanished.md",
            FreezeScope.REGION,
        ),
        FreezeCause.DUPLICATE_KEYS: CauseFacts(
            "the base table holds a key more than once",
            "a merge cannot tell which of the rows is the newest",
            {Choice.ACCEPT: "ends the freeze: right once the duplicates are removed"},
            "docs/runbooks/duplicate-keys.md",
        ),
        FreezeCause.CHECK_FAILED: CauseFacts(
            "a check of the table after a merge failed",
            "further merges and collections would remove the evidence",
            {Choice.ACCEPT: "ends the freeze: right once the rows are right, or the check was wrong"},
            "docs/runbooks/check-failed.md",
        ),
        FreezeCause.CRITICAL_FINDING: CauseFacts(
            "the doctor found damage that endangers rows",
            "further merges and collections could lose rows",
            {Choice.ACCEPT: "ends the freeze: right once the doctor no longer finds it"},
            "docs/doctor.md",
        ),
    }
)
