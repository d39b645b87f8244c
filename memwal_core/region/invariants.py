"""What must hold in every region manifest and between each version and the next.

One pure function per rule, called before a version is written and after one is read; it returns
what is wrong, or None. Transition rules take (new, old) and bind our own commits only: pylance's
writer may combine changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import MAX_UINT64, require_generation_path
from memwal_core.format.region_manifest.model import FIRST_GENERATION, RegionManifest

_MOST = MAX_UINT64 // 2
"""No history comes near it; what is near the end of 64 bits has no next, which claims, flushes and probes need."""
_COUNTERS = ("version", "writer_epoch", "replay_after_wal_id", "wal_id_last_seen", "current_generation")

CLAIM_FIELDS = frozenset({"writer_epoch"})
FLUSH_FIELDS = frozenset({"replay_after_wal_id", "wal_id_last_seen", "current_generation", "flushed_generations"})
HINT_FIELDS = frozenset({"wal_id_last_seen"})
DRAIN_FIELDS = frozenset({"flushed_generations"})
RESTORE_FIELDS = frozenset({"flushed_generations"})
TRIGGER_FIELDS = (CLAIM_FIELDS, FLUSH_FIELDS, HINT_FIELDS, DRAIN_FIELDS)
"""Which fields each kind of change may touch; one version is one kind of change."""

_ATTEMPT_FIELDS = frozenset({"version", "commit_id"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, by the name of its function, and what was found instead."""

    rule: str
    problem: str


def counters_fit(manifest: RegionManifest) -> str | None:
    """All numbers are unsigned, of 64 bits, and can be raised; versions start at 1."""
    for name in _COUNTERS:
        if not 0 <= getattr(manifest, name) <= _MOST:
            return f"{name} is {getattr(manifest, name)}"
    return "version is 0" if manifest.version == 0 else None


def generations_start_at_one(manifest: RegionManifest) -> str | None:
    """Generations are numbered from 1."""
    numbers = [manifest.current_generation, *(entry.generation for entry in manifest.flushed_generations)]
    lowest = min(numbers)
    return f"a generation is {lowest}" if lowest < FIRST_GENERATION else None


def generations_ascend(manifest: RegionManifest) -> str | None:
    """Recorded generations are unique and ascending."""
    for first, second in pairwise(manifest.flushed_generations):
        if first.generation >= second.generation:
            return f"generation {second.generation} follows {first.generation}"
    return None


def generations_are_flushed(manifest: RegionManifest) -> str | None:
    """Recorded generations lie below the current one, which is the oldest not yet flushed."""
    for entry in manifest.flushed_generations:
        if entry.generation >= manifest.current_generation:
            return f"generation {entry.generation} is recorded while {manifest.current_generation} is current"
    return None


def paths_are_unique(manifest: RegionManifest) -> str | None:
    """No two generations share a directory."""
    paths = [entry.path for entry in manifest.flushed_generations]
    return "two generations have one path" if len(set(paths)) < len(paths) else None


def paths_stay_inside(manifest: RegionManifest) -> str | None:
    """Recorded paths are plain names inside the region directory."""
    for entry in manifest.flushed_generations:
        try:
            require_generation_path(entry.path)
        except InvalidRequestError:
            return f"generation {entry.generation} has path {entry.path!r}"
    return None


def version_is_next(new: RegionManifest, old: RegionManifest) -> str | None:
    """Each version is one more than the last."""
    return None if new.version == old.version + 1 else f"version {new.version} after {old.version}"


def identity_stays(new: RegionManifest, old: RegionManifest) -> str | None:
    """Region id, spec id, field values, status and unknown fields are set once."""
    for name in ("region_id", "region_spec_id", "region_field_values", "status", "unknown"):
        if getattr(new, name) != getattr(old, name):
            return f"{name} changed from {getattr(old, name)!r} to {getattr(new, name)!r}"
    return None


def epoch_grows_by_claims(new: RegionManifest, old: RegionManifest) -> str | None:
    """The epoch is kept, or raised by exactly 1; a lower token never replaces a higher one."""
    return (
        None
        if new.writer_epoch in (old.writer_epoch, old.writer_epoch + 1)
        else f"writer_epoch {new.writer_epoch} after {old.writer_epoch}"
    )


def wal_positions_never_fall(new: RegionManifest, old: RegionManifest) -> str | None:
    """The replay pointer and the hint never decrease."""
    for name in ("replay_after_wal_id", "wal_id_last_seen"):
        if getattr(new, name) < getattr(old, name):
            return f"{name} {getattr(new, name)} after {getattr(old, name)}"
    return None


def replay_moves_with_flushes(new: RegionManifest, old: RegionManifest) -> str | None:
    """The replay pointer moves only in a version that records a flushed MemTable."""
    if new.replay_after_wal_id != old.replay_after_wal_id and new.current_generation == old.current_generation:
        return f"replay_after_wal_id {new.replay_after_wal_id} without a flush"
    return None


def flushes_follow_each_other(new: RegionManifest, old: RegionManifest) -> str | None:
    """A version adds nothing, or the current generation, which then rises by one."""
    known = {entry.generation for entry in old.flushed_generations}
    added = [entry.generation for entry in new.flushed_generations if entry.generation not in known]
    risen = new.current_generation - old.current_generation
    expected = [old.current_generation] if risen == 1 else []
    if risen not in (0, 1) or added != expected:
        return f"generations {added} added while current_generation went from {old.current_generation} by {risen}"
    return None


def records_stay(new: RegionManifest, old: RegionManifest) -> str | None:
    """A recorded generation may be removed, never altered."""
    before = {entry.generation: entry for entry in old.flushed_generations}
    for entry in new.flushed_generations:
        if before.get(entry.generation, entry) != entry:
            return f"the record of generation {entry.generation} changed"
    return None


def flushes_remove_nothing(new: RegionManifest, old: RegionManifest) -> str | None:
    """A version that records a flush keeps all earlier records."""
    kept = {entry.generation for entry in new.flushed_generations}
    gone = [entry.generation for entry in old.flushed_generations if entry.generation not in kept]
    if gone and new.current_generation != old.current_generation:
        return f"a flush also removed generations {gone}"
    return None


def one_kind_of_change(new: RegionManifest, old: RegionManifest) -> str | None:
    """A version is a claim, a flush, a raised hint or a drain, never two of them."""
    changed = changed_fields(new, old)
    if any(changed <= allowed for allowed in TRIGGER_FIELDS):
        return None
    return f"changed together: {', '.join(sorted(changed))}"


def restores_touch_records_only(new: RegionManifest, old: RegionManifest) -> str | None:
    """A repair changes records of flushed MemTables and nothing else."""
    changed = changed_fields(new, old)
    return None if changed <= RESTORE_FIELDS else f"changed: {', '.join(sorted(changed))}"


def restores_remove_nothing(new: RegionManifest, old: RegionManifest) -> str | None:
    """A repair gives generations another directory or records forgotten ones; none leaves the manifest."""
    kept = {entry.generation for entry in new.flushed_generations}
    gone = [entry.generation for entry in old.flushed_generations if entry.generation not in kept]
    return f"generations {gone} are no longer recorded" if gone else None


MANIFEST_RULES: tuple[Callable[[RegionManifest], str | None], ...] = (
    counters_fit,
    generations_start_at_one,
    generations_ascend,
    generations_are_flushed,
    paths_are_unique,
    paths_stay_inside,
)
TRANSITION_RULES: tuple[Callable[[RegionManifest, RegionManifest], str | None], ...] = (
    version_is_next,
    identity_stays,
    epoch_grows_by_claims,
    wal_positions_never_fall,
    replay_moves_with_flushes,
    flushes_follow_each_other,
    records_stay,
    flushes_remove_nothing,
    one_kind_of_change,
)
RESTORE_RULES: tuple[Callable[[RegionManifest, RegionManifest], str | None], ...] = (
    version_is_next,
    identity_stays,
    restores_touch_records_only,
    restores_remove_nothing,
)
"""In place of ``TRANSITION_RULES`` for the one change that only a repair makes: a generation's new directory."""


def changed_fields(new: RegionManifest, old: RegionManifest) -> frozenset[str]:
    """Return the names of the fields that differ, apart from version and commit id."""
    names = {item.name for item in fields(RegionManifest)} - _ATTEMPT_FIELDS
    return frozenset(name for name in names if getattr(new, name) != getattr(old, name))


def manifest_violations(manifest: RegionManifest) -> list[Violation]:
    """Return every rule that one manifest breaks."""
    found = ((rule, rule(manifest)) for rule in MANIFEST_RULES)
    return [Violation(rule.__name__, problem) for rule, problem in found if problem is not None]


def transition_violations(new: RegionManifest, old: RegionManifest, *, restores: bool = False) -> list[Violation]:
    """Return every rule that a new version breaks against the one before it; ``restores``: by a repair."""
    found = ((rule, rule(new, old)) for rule in (RESTORE_RULES if restores else TRANSITION_RULES))
    return [Violation(rule.__name__, problem) for rule, problem in found if problem is not None]
