"""Collecting garbage: what nobody needs any more, after proof, and nothing on doubt.

One module per kind of garbage plans purely (``flushed``, ``directories``, ``wal_entries``,
``versions``, ``leftovers``, ``staged_keys``, ``staged_rows``, ``batch_records``); ``survey`` reads,
``frozen`` finds states that do not fit together, ``deleter`` is the only place that changes anything.
Owns no state: that a directory was drained, and when, is told by the versions of the region manifest.
May import base table, manifests, index, register, storage and what lies below.
"""

from memwal_core.maintenance.gc.deleter import Failure
from memwal_core.maintenance.gc.items import Action, Gate, Item, Kind, Rule, Tally
from memwal_core.maintenance.gc.needed import needed_versions, versions_needed
from memwal_core.maintenance.gc.plan import GcPlan, plan_gc
from memwal_core.maintenance.gc.policy import Policy, check_retention
from memwal_core.maintenance.gc.report import GcReport
from memwal_core.maintenance.gc.run import GcParts, collect_garbage
from memwal_core.maintenance.gc.state import BaseState, DirectoryState, GcState, NumberedObject, RegionState, Register
from memwal_core.maintenance.gc.survey import Surveyor

__all__ = [
    "Action",
    "BaseState",
    "DirectoryState",
    "Failure",
    "Gate",
    "GcParts",
    "GcPlan",
    "GcReport",
    "GcState",
    "Item",
    "Kind",
    "NumberedObject",
    "Policy",
    "RegionState",
    "Register",
    "Rule",
    "Surveyor",
    "Tally",
    "check_retention",
    "collect_garbage",
    "needed_versions",
    "plan_gc",
    "versions_needed",
]
