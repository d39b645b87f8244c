"""Comparing what a read finds with what was seen of the table: with no request beyond the record's own."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from memwal_core.base_table import TableReader, TableState, inherited_progress
from memwal_core.coordination.freeze.cause import FreezeCause
from memwal_core.coordination.freeze.comparison import Contradiction, Sighting, compare
from memwal_core.coordination.freeze.document import Freeze, MaintenanceRecord
from memwal_core.coordination.freeze.memory import SeenTable
from memwal_core.coordination.freeze.store import FreezeStore
from memwal_core.coordination.freeze.watch import seen_region, sighting_of, with_index_history
from memwal_core.errors import DamagedError, MemwalError
from memwal_core.format.paths import manifest_path
from memwal_core.ids import RegionId
from memwal_core.reader.history import Doubts
from memwal_core.region import RegionManifest

_REFUSED = {FreezeCause.PROGRESS_AHEAD, FreezeCause.REGION_BEGAN_AGAIN, FreezeCause.REGION_WENT_BACK}
"""Rows of the region are hidden, so that a read would return fewer than there are; of other causes reads warn."""
_TURNED_BACK = {FreezeCause.PROGRESS_WENT_BACK, FreezeCause.INDEX_GONE, FreezeCause.INDEX_MADE_ANEW}

_log = logging.getLogger(__name__)


class RememberedHistory:
    """What reads of one table are compared with: its maintenance record. Safe to share between threads."""

    def __init__(self, base: TableReader, freezes: FreezeStore) -> None:
        self._base = base
        self._freezes = freezes
        self._inherited: Mapping[RegionId, int] | None = None
        self._looked: tuple[SeenTable, uuid.UUID | None, Sighting] | None = None

    def recall(self, *, again: bool = False) -> RecordedHistory:
        """Return what the record says; see ``ReadHistory``."""
        return RecordedHistory(self, self._freezes.recent(again=again))

    def inherited(self) -> Mapping[RegionId, int]:
        """Return the progress with which a clone began; read once."""
        if self._inherited is None:
            self._inherited = inherited_progress(self._base)
        return self._inherited

    def with_index_history(self, record: MaintenanceRecord, seen: Sighting) -> Sighting:
        """Return a sighting with what the versions since the remembered one tell; read once for each index."""
        known, now = record.memory.table, seen.table
        if known is None or now is None:
            return seen
        looked = self._looked
        if looked is None or looked[:2] != (known, now.index_id):
            found = with_index_history(self._base, record.memory, seen)
            self._looked = looked = (known, now.index_id, found)
        found = looked[2]
        return replace(seen, rewritten=found.rewritten, interrupted_at=found.interrupted_at, unproven=found.unproven)


class RecordedHistory:
    """What the record of a table said when a read began."""

    def __init__(self, history: RememberedHistory, record: MaintenanceRecord | None) -> None:
        self._history = history
        self._record = record

    @property
    def regions(self) -> Collection[RegionId]:
        """Regions that were seen."""
        return self._record.memory.regions.keys() if self._record is not None else ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Why the table is frozen."""
        return tuple(dict.fromkeys(each.cause.value for each in self._active))

    @property
    def _active(self) -> tuple[Freeze, ...]:
        return self._record.active if self._record is not None else ()

    def doubts(self, state: TableState, manifests: Sequence[RegionManifest]) -> Doubts:
        """Compare what a read found; see ``Recollection``."""
        seen = replace(sighting_of(state), regions={each.region_id: seen_region(each, b"") for each in manifests})
        try:
            found = self._contradictions(state, seen)
        except MemwalError as error:
            _log.warning("a read cannot tell whether the history of the table changed: %s", error)
            return Doubts(self.causes)
        known = {(each.cause, each.region_id) for each in self._active}
        frozen = tuple(Contradiction(each.cause, each.evidence, each.region_id) for each in self._active)
        by_id = {each.region_id: each for each in manifests}
        refused = {
            each.region_id: _refusal(each, by_id[each.region_id])
            for each in (*frozen, *found)
            if each.cause in _REFUSED and each.region_id in by_id
        }
        causes = dict.fromkeys([*self.causes, *(each.cause.value for each in found if each.cause not in _REFUSED)])
        are_new = any((each.cause, each.region_id) not in known for each in found)
        return Doubts(tuple(causes), refused, are_new=are_new, turned_back=not _TURNED_BACK.isdisjoint(causes))

    def _contradictions(self, state: TableState, seen: Sighting) -> tuple[Contradiction, ...]:
        record = self._record
        if record is None or record.memory.table is None:
            return self._of_clone(state, seen)
        known = record.memory.table
        is_another = known is not None and state.entry is not None and known.index_id != state.entry.index_id
        if is_another and not any(seen.progress.values()) and not any(record.memory.progress.values()):
            # Where something was merged, progress itself tells; merges of Lance give the index a new id all the time.
            seen = self._history.with_index_history(record, seen)
        return compare(record.memory, seen)

    def _of_clone(self, state: TableState, seen: Sighting) -> tuple[Contradiction, ...]:
        merged = [region_id for region_id in seen.regions if seen.progress.get(region_id, 0)]
        if not merged or not state.is_clone:
            return ()
        inherited = self._history.inherited()
        cause = FreezeCause.REGION_BEGAN_AGAIN
        return tuple(
            Contradiction(cause, {"is_clone": True, "merged": seen.progress[each]}, each)
            for each in merged
            if inherited.get(each, 0)
        )


def _refusal(found: Contradiction, manifest: RegionManifest) -> DamagedError:
    evidence = ", ".join(f"{name}={value}" for name, value in found.evidence.items() if isinstance(value, int))
    return DamagedError(
        found.cause.facts.summary,
        remedy="run `memwal merge`, which freezes the table, and then `memwal thaw` to decide what it is",
        region_id=str(manifest.region_id),
        path=manifest_path(manifest.region_id, manifest.version),
        cause=f"{found.cause.facts.summary} ({evidence})",
    )
