"""What blocks a merge until a person acts, as one error for the engineer on call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from memwal_core.errors import CorruptionError
from memwal_core.jobs.merge.plan import MergePlan, Verdict

PAGES: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.AHEAD: "docs/runbooks/progress-lost.md",
        Verdict.DAMAGED: "docs/runbooks/corrupt-region-manifest.md",
        Verdict.HOLE: "docs/runbooks/generation-hole.md",
        Verdict.MISSING: "docs/runbooks/generation-hole.md",
        Verdict.QUARANTINED: "docs/runbooks/quarantined-generations.md",
        Verdict.PARKED: "docs/runbooks/pending-generations.md",
    }
)
"""The runbook of each verdict, the most urgent first."""


def explain_stuck(table_uri: str, plan: MergePlan) -> CorruptionError | None:
    """Return every region that only a person can unblock, with evidence and the most urgent runbook; None if none."""
    if not plan.stuck:
        return None
    verdicts = {region.verdict for region in plan.stuck}
    page = next(page for verdict, page in PAGES.items() if verdict in verdicts)
    return CorruptionError(
        "some regions cannot be merged until a person has acted",
        remedy=f"read the verdicts and follow {page}",
        table=table_uri,
        regions={str(region.region_id): f"{region.verdict.value}: {region.evidence}" for region in plan.stuck},
    )
