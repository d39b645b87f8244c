"""Failed checks that a person has looked at and accepted, with a freeze's evidence as the only record of them. Pure."""

from __future__ import annotations

from memwal_core.coordination.freeze.cause import Choice, FreezeCause
from memwal_core.coordination.freeze.document import MaintenanceRecord

_BASIS = "basis"
_FAILURES = "failures"


def failure_evidence(basis: str, failures: tuple[str, ...]) -> dict[str, object]:
    """Return what the freeze of failed checks remembers of them: what was checked, and which failures they are."""
    return {_BASIS: basis, _FAILURES: list(failures)}


def accepted_failures(record: MaintenanceRecord | None, basis: str) -> frozenset[str]:
    """Return the failures that a person accepted on this basis; once something is merged, it is another one."""
    found: set[str] = set()
    for freeze in record.freezes if record is not None and basis else ():
        is_accepted = freeze.ended is not None and freeze.ended.choice is Choice.ACCEPT
        if freeze.cause is FreezeCause.CHECK_FAILED and is_accepted and freeze.evidence.get(_BASIS) == basis:
            failures = freeze.evidence.get(_FAILURES)
            found.update(map(str, failures if isinstance(failures, list) else ()))
    return frozenset(found)
