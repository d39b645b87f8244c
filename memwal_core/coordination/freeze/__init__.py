"""The maintenance record of a table: what was seen of it, and the freezes that only a person ends.

Owns ``_mem_wal/_record/``. ``memory`` says what is remembered, ``comparison`` which sightings contradict it (pure),
``store`` keeps both with the freezes. Runs compare through ``HistoryWatch`` (``memwal_core.jobs.history``).
"""

from memwal_core.coordination.freeze.accepted import accepted_failures, failure_evidence
from memwal_core.coordination.freeze.cause import CAUSES, CauseFacts, Choice, FreezeCause, FreezeScope
from memwal_core.coordination.freeze.comparison import Contradiction, Sighting, compare
from memwal_core.coordination.freeze.document import Freeze, FreezeEnd, MaintenanceRecord
from memwal_core.coordination.freeze.memory import Memory, SeenRegion, SeenTable
from memwal_core.coordination.freeze.store import FreezeStore, refuse_frozen

__all__ = [
    "CAUSES",
    "CauseFacts",
    "Choice",
    "Contradiction",
    "Freeze",
    "FreezeCause",
    "FreezeEnd",
    "FreezeScope",
    "FreezeStore",
    "MaintenanceRecord",
    "Memory",
    "SeenRegion",
    "SeenTable",
    "Sighting",
    "accepted_failures",
    "compare",
    "failure_evidence",
    "refuse_frozen",
]
