"""Random histories of one table and its copies, in which people's hands do what no job would do.

Writers (of this project, of pylance, of LanceDB) and jobs take turns with hands that copy, move, swap, restore,
overwrite, enable again, clone, branch, tag, clean up, delete and damage. A model knows after each step which rows must
be visible, and what may be refused for which reason. Wrong rows, an error that is not ours, and a refusal that no hand
explains fail the history.
"""

from testkit.hands.history import HistoryFailedError, Made, PlayedHistory, play

__all__ = ["HistoryFailedError", "Made", "PlayedHistory", "play"]
