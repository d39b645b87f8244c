"""A deterministic simulation: writers, jobs and zombies on one real table, from one seed.

The code under test is the real one, over real Lance tables on a local directory. One thread runs
everything: at any call to the store, and at any named place of a job, another actor may take a
turn, the store may fail before or after its effect, or the process of the running actor may die.
In one of three scenes, rivals take their turns right before conditional writes; in another, those who
come from outside meet a slow store and a wrong clock. After every turn the table is compared with a
model that knows every acknowledged write.
"""

from testkit.simulation.model import Mismatch, Model
from testkit.simulation.simulate import SimulationFailedError, SimulationResult, Symptom, simulate
from testkit.simulation.world import Chances, World

__all__ = ["Chances", "Mismatch", "Model", "SimulationFailedError", "SimulationResult", "Symptom", "World", "simulate"]
