"""What garbage collection would do to one region now, derived from the plan that it would carry out."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.ids import RegionId
from memwal_core.jobs.gc.items import Item, Kind
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.text import show_count

_WORDS = {
    Kind.FLUSHED_MEMTABLE: "flushed MemTable",
    Kind.DIRECTORY: "unrecorded directory",
    Kind.WAL_ENTRY: "WAL entry",
    Kind.MANIFEST_VERSION: "manifest version",
    Kind.LEFTOVER: "leftover file",
}
_EXPLAINED = (Kind.FLUSHED_MEMTABLE, Kind.DIRECTORY)
"""The kinds that the sentence explains; the rest is counted in the facts."""


def explain_garbage(plan: GcPlan, region_id: RegionId) -> tuple[bool, str, dict[str, object]]:
    """Tell whether a collection would act on a region, why in one sentence, and on what JSON-able facts.

    The plan must cover what every retained version and tag still needs. Of the facts, ``free`` and ``kept``
    count items by kind; ``free_through`` is the last generation whose flushed MemTable may go, 0 if none may.
    """
    items = [item for item in plan.items if item.region_id == region_id]
    free = [item for item in items if item.action is not None]
    facts: dict[str, object] = {
        "free": _counts(free),
        "kept": {kind.value: _gates(items, kind) for kind in Kind if _gates(items, kind)},
        "free_through": max((item.number for item in free if item.kind is Kind.FLUSHED_MEMTABLE), default=0),
    }
    frozen = plan.freezes.table or plan.freezes.regions.get(region_id, "")
    if frozen:
        return False, f"frozen: {frozen}", facts
    parts = []
    if free:
        parts.append("collects " + ", ".join(show_count(count, kind) for kind, count in _named(free)))
    parts += [_kept(items, kind) for kind in _EXPLAINED if _gated(items, kind)]
    return bool(free), "; ".join(parts) or "nothing is merged, so nothing is garbage", facts


def _kept(items: Sequence[Item], kind: Kind) -> str:
    """Say what stays, and which gate holds the oldest of it, which would go first."""
    gated = _gated(items, kind)
    oldest = min(gated, key=lambda item: item.number)
    evidence = f" ({oldest.evidence})" if oldest.evidence else ""
    kept = show_count(len(gated), _WORDS[kind])
    return f"keeps {kept}, generation {oldest.number} because: {oldest.reason.value}{evidence}"


def _gated(items: Sequence[Item], kind: Kind) -> list[Item]:
    return [item for item in items if item.kind is kind and item.action is None]


def _named(free: Sequence[Item]) -> list[tuple[str, int]]:
    return [(_WORDS.get(Kind(kind), kind), count) for kind, count in _counts(free).items()]


def _counts(items: Sequence[Item]) -> dict[str, int]:
    return {kind.value: count for kind in Kind if (count := sum(item.kind is kind for item in items))}


def _gates(items: Sequence[Item], kind: Kind) -> dict[str, int]:
    gates: dict[str, int] = {}
    for item in _gated(items, kind):
        gates[item.reason.value] = gates.get(item.reason.value, 0) + 1
    return gates
