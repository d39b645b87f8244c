"""What stands in the way of a merge until somebody acts, as one error for whoever is on call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from memwal_core.errors import CorruptionError
from memwal_core.maintenance.merge.plan import MergePlan, Verdict

PAGES: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.AHEAD: "docs/runbooks/progress-lost.md",
        Verdict.HOLE: "docs/runbooks/generation-hole.md",
        Verdict.MISSING: "docs/runbooks/generation-hole.md",
        Verdict.HELD: "docs/runbooks/held-generations.md",
        Verdict.PARKED: "docs/runbooks/pending-generations.md",
    }
)
"""Where to go on, in the order of urgency."""


def explain_stuck(table_uri: str, plan: MergePlan) -> CorruptionError | None:
    """Return the error of a plan that ends somewhere at what only a person can resolve.

    Args:
        table_uri: The base table.
        plan: What was planned.

    Returns:
        Every such region with its verdict and evidence, and the runbook of the most urgent one; None if there is none.
    """
    if not plan.stuck:
        return None
    verdicts = {region.verdict for region in plan.stuck}
    page = next(page for verdict, page in PAGES.items() if verdict in verdicts)
    return CorruptionError(
        "some regions cannot be merged before somebody has looked at them",
        remedy=f"read the verdicts and follow {page}",
        table=table_uri,
        regions={str(region.region_id): f"{region.verdict.value}: {region.evidence}" for region in plan.stuck},
    )
