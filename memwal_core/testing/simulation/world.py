"""The table, its faults and its clock, and the one place where turns interrupt each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memwal_core.base_table import BaseTable, Sources
from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, UnavailableError
from memwal_core.ids import IdSource
from memwal_core.rng import Rng, seeded_rng
from memwal_core.settings import IndexSettings, MergeSettings, Settings, StorageSettings, WriterSettings
from memwal_core.storage import open_store
from memwal_core.testing.clock import ManualClock
from memwal_core.testing.crash import SimulatedCrash
from memwal_core.testing.faulty_store import Call, Moment, Rule, unavailable
from memwal_core.testing.simulation.clocked_store import ClockedStore
from memwal_core.testing.simulation.model import Model
from memwal_core.testing.tables import make_people_table

EXPECTED_ERRORS = (CommitUnknownError, ConflictError, FencedError, UnavailableError)
"""What an actor may meet when rivals and faults do their worst. Anything else is a defect."""

KEYS = 16
_MAX_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Chances:
    """How probable trouble is at one call to the store.

    Attributes:
        interleave: Another actor takes a turn.
        fail: The call fails, before or after its effect.
        crash: The running actor's process dies, before or after the effect.
    """

    interleave: float = 0.04
    fail: float = 0.01
    crash: float = 0.005


class Actor(Protocol):
    """Somebody who uses the table."""

    @property
    def name(self) -> str:
        """Name in the trace."""
        ...

    def turn(self) -> str:
        """Do one thing.

        Returns:
            What was done, for the trace.
        """
        ...

    def die(self) -> None:
        """Forget everything that a killed process would forget."""
        ...


class World:
    """One simulated table and everybody who works on it.

    Args:
        seed: Decides everything.
        directory: An empty directory.
        chances: How probable trouble is.
        settings: Overrides the small, fast settings of the simulation.
    """

    def __init__(self, seed: int, directory: Path, chances: Chances, settings: Settings | None = None) -> None:
        """Create the table; there are no actors yet."""
        self.seed = seed
        self.rng: Rng = seeded_rng(seed)
        self.clock = ManualClock()
        self.ids = IdSource(seeded_rng(self.rng.getrandbits(64)))
        self.settings = settings if settings is not None else small_settings()
        self.model = Model()
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self._chances = chances
        self._running: list[Actor] = []
        uri = str(directory / "people.lance")
        make_people_table(uri, buckets=2, settings=self.settings)
        self.plain = BaseTable.open(uri, settings=self.settings)
        """The table over a store that never fails, for checks."""
        self.store = ClockedStore(open_store(uri, settings=self.settings.storage), self.clock)
        self.table = BaseTable(self.store, settings=self.settings, sources=Sources(self.clock, self._derived_rng()))
        """The table as the actors see it."""
        for moment in Moment:
            self.store.add(Rule(self._trouble(moment), moment, times=None))

    def take_turn(self, actor: Actor) -> None:
        """Let an actor do one thing, and note what came of it.

        Raises:
            MemwalError: The actor met an error that rivals and faults do not explain.
        """
        self._running.append(actor)
        depth = "  " * (len(self._running) - 1)
        try:
            self._note(f"{depth}{actor.name}: begins")
            self._note(f"{depth}{actor.name}: {actor.turn()}")
        except EXPECTED_ERRORS as error:
            self._note(f"{depth}{actor.name}: {type(error).__name__}")
        except SimulatedCrash as crash:
            self._note(f"{depth}{actor.name}: dies at {crash.name}")
            actor.die()
        finally:
            self._running.pop()

    def reach(self, place: str) -> None:
        """Pass a named place of a job, at which everything may happen that may happen at a store call."""
        self._strike(place, after=False)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Let nothing interfere, for work that belongs to the simulation itself."""
        saved, self._chances = self._chances, Chances(0, 0, 0)
        try:
            yield
        finally:
            self._chances = saved

    def _trouble(self, moment: Moment) -> Callable[[Call], None]:
        def strike(call: Call) -> None:
            if self._running and self._strike(f"{call.operation} {call.path[-40:]}", after=moment is Moment.AFTER):
                unavailable(call)

        return strike

    def _strike(self, place: str, *, after: bool) -> bool:
        """Interleave, crash or return whether the call shall fail.

        Raises:
            SimulatedCrash: The running actor's process dies here.
        """
        drawn = self.rng.random()
        chances = self._chances
        if drawn < chances.crash:
            raise SimulatedCrash(f"{'after' if after else 'before'} {place}")
        if drawn < chances.crash + chances.fail:
            return True
        if drawn < chances.crash + chances.fail + chances.interleave and len(self._running) < _MAX_DEPTH:
            idle = [actor for actor in self.actors if actor not in self._running]
            if idle:
                self.take_turn(self.rng.choice(idle))
        return False

    def _note(self, line: str) -> None:
        self.trace.append(line)

    def _derived_rng(self) -> Rng:
        return seeded_rng(self.rng.getrandbits(64))


def small_settings() -> Settings:
    """Return settings under which everything happens within a few turns."""
    return Settings(
        storage=StorageSettings(fsync=False, retry_wait_s=0, max_attempts=2, concurrency=1),
        writer=WriterSettings(max_memtable_rows=6, epoch_check_interval_s=10),
        merge=MergeSettings(max_generations=3, max_attempts=3),
        index=IndexSettings(max_attempts=4, inline_snapshot_threshold=1),
    )
