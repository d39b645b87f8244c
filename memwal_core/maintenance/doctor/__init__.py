"""The doctor: every invariant of a table checked from outside, and nothing changed.

``examiner`` reads, ``checks`` judge (pure, one function per rule), ``run`` puts both together.
Owns no state. May import the other maintenance packages' readers and what lies below.
"""

from memwal_core.maintenance.doctor.checks import CHECKS, Check
from memwal_core.maintenance.doctor.examination import Examination
from memwal_core.maintenance.doctor.examiner import Examiner
from memwal_core.maintenance.doctor.findings import DoctorReport, Finding, Severity
from memwal_core.maintenance.doctor.run import diagnose, examine_table

__all__ = [
    "CHECKS",
    "Check",
    "DoctorReport",
    "Examination",
    "Examiner",
    "Finding",
    "Severity",
    "diagnose",
    "examine_table",
]
