"""The signal of space that nobody needs: from the plan of a garbage collection."""

from __future__ import annotations

from memwal_core.base_table import BaseTable
from memwal_core.maintenance.gc import Gate, GcPlan
from memwal_core.maintenance.signals.judge import Reading
from memwal_core.maintenance.signals.signal import Signal


def garbage_reading(table: BaseTable, plan: GcPlan) -> Reading:
    """Compare what a collection would delete, now or after the grace period, with the whole table.

    What is only switched off, or kept on purpose, is no garbage.

    Args:
        table: The base table.
        plan: Of a dry run.

    Raises:
        UnavailableError: Storage failed.
    """
    garbage = sum(item.size_bytes for item in plan.items if item.action is not None or item.reason is Gate.GRACE)
    fragments = table.dataset(plan.version).get_fragments()
    base = sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.metadata.files)
    total = base + sum(item.size_bytes for item in plan.items)
    return Reading(Signal.GARBAGE, round(garbage / total, 4) if total else 0.0, f"{garbage:,} of {total:,} bytes")
