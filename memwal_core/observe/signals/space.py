"""The signals of space, from the plan of a garbage collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from memwal_core.base_table import BaseTable
from memwal_core.jobs.gc.items import Gate
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.view import show_words
from memwal_core.observe.signals.judge import Reading
from memwal_core.observe.signals.signal import Signal

_LATE = 2.0
"""What is older than so many times the history is not waiting for its turn."""


def space_readings(
    table: BaseTable, plan: GcPlan, history_s: float, is_fresh_copy: Callable[[], bool]
) -> Iterator[Reading]:
    """Compare what a collection would delete, and what it will never delete by itself, with the whole table.

    Garbage is what a collection acts on now; in the grace period it would do nothing. Kept is what is older than twice
    the history and stays until somebody acts: a tag, a setting, an index that lags or a freeze keeps it. What a fresh
    copy has of older versions, which stayed with the original, waits for its first collection.
    """
    free = sum(item.size_bytes for item in plan.items if item.action is not None)
    garbage = free if not free or not is_fresh_copy() else 0
    waits = sum(item.size_bytes for item in plan.items if item.action is None and item.reason is Gate.GRACE)
    kept: Counter[str] = Counter()
    for item in plan.items:
        if item.stays and item.age_s > _LATE * history_s:
            kept[f"{item.kind.value}: {'a tag or a branch' if item.is_pinned else item.reason.value}"] += (
                item.size_bytes
            )
    fragments = table.dataset(plan.version).get_fragments()
    base = sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.metadata.files)
    total = base + sum(item.size_bytes for item in plan.items)
    later = f", and {waits:,} in the grace period" if waits else ""
    later += f", and {free:,} until the first collection of this copy" if free > garbage else ""
    yield Reading(
        Signal.GARBAGE,
        _share(garbage, total),
        f"{garbage:,} of {total:,} bytes{later}",
        evidence={"bytes": garbage, "in_grace_period_bytes": waits},
    )
    largest = "".join(f"; {show_words(reason)}" for reason, _ in kept.most_common(1))
    subject = f"{kept.total():,} of {total:,} bytes{largest}"
    yield Reading(Signal.KEPT, _share(kept.total(), total), subject, evidence={"bytes": dict(kept.most_common())})


def _share(part: int, total: int) -> float:
    return round(part / total, 4) if total else 0.0
