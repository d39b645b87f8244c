"""The doctor: every invariant of a table checked from outside, and nothing changed.

``examiner`` reads, ``checks`` judge (pure, one function per rule), ``run`` puts both together. What becomes of the
findings is decided in ``maintenance.health``. Owns no state. May import the other maintenance packages' readers.
"""

from memwal_core.observe.doctor.checks import CHECKS, Check
from memwal_core.observe.doctor.commands import command_for
from memwal_core.observe.doctor.diagnosis import diagnose, look_twice
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.doctor.examiner import Examiner

__all__ = ["CHECKS", "Check", "Examination", "Examiner", "command_for", "diagnose", "look_twice"]
