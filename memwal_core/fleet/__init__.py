"""All tables of a registry, maintained by one process: which are due, side by side, and none can delay another.

Owns no state but the threads that it could not wait for. May import jobs, the registry and what lies below.
"""

from memwal_core.fleet.due import Due, cycle_due, cycle_request, is_idle, left_its_lease, work_due
from memwal_core.fleet.maintain import Fleet, FleetRequest, broken_round
from memwal_core.fleet.report import FleetReport, RoundEnd, TableRound
from memwal_core.fleet.service import FleetService, KnownTable, ServiceState

__all__ = [
    "Due",
    "Fleet",
    "FleetReport",
    "FleetRequest",
    "FleetService",
    "KnownTable",
    "RoundEnd",
    "ServiceState",
    "TableRound",
    "broken_round",
    "cycle_due",
    "cycle_request",
    "is_idle",
    "left_its_lease",
    "work_due",
]
