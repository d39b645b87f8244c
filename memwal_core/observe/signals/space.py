"""The signal of garbage, from the plan of a garbage collection."""

from __future__ import annotations

from memwal_core.base_table import BaseTable
from memwal_core.jobs.gc.items import Gate
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.observe.signals.judge import Reading
from memwal_core.observe.signals.signal import Signal


def garbage_reading(table: BaseTable, plan: GcPlan) -> Reading:
    """Compare what a collection would delete, now or after the grace period, with the whole table.

    Collection that is switched off, or data that is kept on purpose, is not garbage.
    """
    garbage = sum(item.size_bytes for item in plan.items if item.action is not None or item.reason is Gate.GRACE)
    fragments = table.dataset(plan.version).get_fragments()
    base = sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.metadata.files)
    total = base + sum(item.size_bytes for item in plan.items)
    return Reading(Signal.GARBAGE, round(garbage / total, 4) if total else 0.0, f"{garbage:,} of {total:,} bytes")
