"""The doctor: every invariant of a table checked from outside, and nothing changed.

``examiner`` reads, ``checks`` judge (pure, one function per rule), ``diagnosis`` puts both together. What becomes of
the findings is decided in ``observe.health``. Owns no state.
"""

from memwal_core.observe.doctor.checks import CHECKS, DoctorCheck
from memwal_core.observe.doctor.commands import command_for
from memwal_core.observe.doctor.diagnosis import diagnose, look_twice
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.doctor.examiner import Examiner

__all__ = ["CHECKS", "DoctorCheck", "Examination", "Examiner", "command_for", "diagnose", "look_twice"]
