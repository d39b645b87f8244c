"""The table, its faults and its clock, and the one place where turns interrupt each other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

from memwal_core.base_table import BaseTable, Sources
from memwal_core.coordination.freeze import FreezeCause, FreezeStore
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    FencedError,
    FrozenError,
    InvalidRequestError,
    MemwalError,
    UnavailableError,
)
from memwal_core.ids import IdSource
from memwal_core.rng import Rng
from memwal_core.settings import Settings
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.failpoints import CallingFailpoints, SimulatedCrash
from testkit.faults.faulty_store import Call, Moment, Rule, unavailable
from testkit.rng import seeded_rng
from testkit.simulation.clocked_store import ClockedStore
from testkit.simulation.contests import ContestedStore, Contests, WriteKind, kind_of
from testkit.simulation.model import Model
from testkit.simulation.small import buffered, has_links, is_buffering, small_settings
from testkit.simulation.view import PlainView
from testkit.tables.people import make_people_table

EXPECTED_ERRORS = (CommitUnknownError, ConflictError, FencedError, UnavailableError)
"""What an actor may meet when rivals and faults do their worst. Anything else is a defect."""

KEYS = 16
"""Keys of this number that regions have: 0 and up."""
BASE_KEYS = range(100, 106)
"""Keys that only the base table has, because others write them there."""
FREEZE_KEY = 0
FROZEN = "frozen"
"""The key of the table, and its value, in the model of what people freeze."""
JUMPED_BACK = "clock jumped back"
OVERWRITTEN = "table overwritten"
_AFTER_JUMP = (FreezeCause.REGION_BEGAN_AGAIN.value,)
"""The store's own clock says that a region is younger than what was merged of it."""
_AFTER_RESTORE = (FreezeCause.PROGRESS_WENT_BACK.value,)
_AFTER_OVERWRITE = (FreezeCause.INDEX_GONE.value, FreezeCause.INDEX_MADE_ANEW.value)
_MAX_DEPTH = 2
_ROUTED = (0, 3)
_DURABLE = 0.5


@dataclass(frozen=True, slots=True)
class Chances:
    """How probable trouble is at one call to the store.

    Attributes:
        interleave: Another actor takes a turn.
        fail: The call fails, before or after its effect.
        crash: The running actor's process dies, before or after the effect.
        lance: A call of Lance in a flush fails, before or after its effect. There are few of them.
        aim: A rival takes a turn right before a conditional write, after everything was read that led to it. A rival
            is whoever has written to the same directory before, if there is one.
    """

    interleave: float = 0.04
    fail: float = 0.004
    crash: float = 0.002
    lance: float = 0.03
    aim: float = 0.0


class Actor:
    """Somebody who uses the table.

    Args:
        world: Where it lives.
        name: Its name in the trace.
    """

    contests: ClassVar[WriteKind | None] = None
    """A kind of write at which it is the rival if anybody is."""

    def __init__(self, world: World, name: str) -> None:
        """Keep the parts."""
        self.name = name
        self._world = world

    def turn(self) -> str:
        """Do one thing.

        Returns:
            What was done, for the trace.
        """
        raise NotImplementedError

    def die(self) -> None:
        """Forget everything that a killed process would forget: nothing, if all that it knows is in the store."""


class World:
    """One simulated table and everybody who works on it.

    Args:
        seed: Decides everything.
        directory: An empty directory.
        chances: How probable trouble is.
        settings: Instead of the small, fast settings of the simulation, in which the seed chooses how merges commit.
    """

    def __init__(self, seed: int, directory: Path, chances: Chances, settings: Settings | None = None) -> None:
        """Create the table; there are no actors yet."""
        self.seed = seed
        self.rng: Rng = seeded_rng(seed)
        self.turn = 0
        """The number of the present turn of the outermost level."""
        self.troubles: Counter[int] = Counter()
        """Turn of the outermost level -> how much it drew that goes wrong, in itself and not in turns within it."""
        self._befalling: Set[int] | None = None
        self.clock = ManualClock()
        self.ids = IdSource(seeded_rng(self.rng.getrandbits(64)))
        self.settings = settings if settings is not None else small_settings(seed)
        self.model = Model()
        self.freezes = Model()
        """Whether a person has frozen the table: it has one key, which exists while it is frozen."""
        self.trace: list[str] = []
        self.seen: Counter[str] = Counter()
        """How often something happened that the simulation exists for."""
        self.is_divided = False
        """Whether regions of several specs have the same keys in turn."""
        self.has_drifted = False
        """Whether the table's schema has changed since the run began."""
        self.actors: list[Actor] = []
        self.restored: set[int] = set()
        """Versions of the base table that are older ones, made the newest again."""
        self.guards: tuple[type[MemwalError], ...] = ()
        """In a negative control, errors with which other rules stop a turn; the run goes on."""
        self.call_takes_s = 0.0
        """Seconds of the simulation's clock that each call of an actor to the store takes."""
        self.contested: WriteKind | None = None
        """What the interrupted turn is about to write, while a rival takes its turn."""
        self._chances = chances
        self._running: list[Actor] = []
        self._dead: dict[int, SimulatedCrash] = {}
        self._defect: Exception | None = None
        self._thread = threading.get_ident()
        self._version_seen: dict[int, datetime] = {}
        self.is_routed = seed % 5 in _ROUTED
        """Whether a table writer takes part, and the table has regions that only it writes."""
        uri = str(directory / "people.lance")
        self.buckets = 4 if self.is_routed else 2
        """Regions that the table's keys are divided into."""
        made = make_people_table(uri, buckets=self.buckets, settings=self.settings)
        made.dataset().create_scalar_index("score", "BTREE")
        self.plain = BaseTable.open(uri, settings=self.settings)
        """The table over a store that never fails, for checks."""
        self.view = PlainView(self.plain)
        """What its versions show, as of the last turn's end."""
        inner = open_store(uri, settings=self.settings.storage)
        self.contests = Contests(inner, self.seen, lambda: self._running[-1].name if self._running else "")
        """Counts the conditional writes of actors."""
        self.store = ClockedStore(ContestedStore(inner, self.contests), self.clock)
        self.store.has_links = has_links(seed)
        self.table = BaseTable(self.store, settings=self.settings, sources=Sources(self.clock, self._derived_rng()))
        """The table as the actors see it."""
        self.failpoints = CallingFailpoints(lambda place: self._strike(place, after=False))
        """Those of a job: at each, everything may happen that may happen at a store call."""
        self.lance_failpoints = CallingFailpoints(self._strike_lance)
        """Those around a call of Lance, which may fail as well."""
        for moment in Moment:
            self.store.add(Rule(self._trouble(moment), moment, times=None))

    @property
    def is_interrupting(self) -> bool:
        """Whether the running turn interrupts another one."""
        return len(self._running) > 1

    def take_numbered_turn(self, number: int, troubles: Set[int] | None = None) -> None:
        """Let some actor do one thing; errors as for ``take_turn``.

        Args:
            number: Decides with the seed all that is drawn in the turn, whatever turns came before it.
            troubles: What alone of the troubles drawn befalls the turn, by number, from 1; all of them if None.
        """
        self.turn, self._befalling = number, troubles
        self.rng.seed(f"{self.seed} {number}")
        self.take_turn(self.rng.choice(self.actors))

    def take_turn(self, actor: Actor) -> None:
        """Let an actor do one thing, and note what came of it.

        Raises:
            Exception: The actor met an error that rivals and faults do not explain, or saw what no correct
                implementation shows.
        """
        self._running.append(actor)
        depth = len(self._running)
        indent = "  " * (depth - 1)
        try:
            self._note(f"{indent}{actor.name}: begins" + (f" turn {self.turn}" if depth == 1 else ""))
            done = actor.turn()
            self._require_alive()
            self._note(f"{indent}{actor.name}: {done}")
        except SimulatedCrash as crash:
            self._bury(indent, actor, crash)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is told with it
            # What a process that died would have reported is of no interest.
            if depth in self._dead:
                self._bury(indent, actor, self._dead[depth])
            elif isinstance(error, (*EXPECTED_ERRORS, *self.guards)) or self._explains(error):
                self._note(f"{indent}{actor.name}: {type(error).__name__}")
            else:
                # Kept, because whoever was interrupted may swallow it.
                self._defect = self._defect or error
        finally:
            self._dead.pop(depth, None)
            self._running.pop()
        if self._defect is not None:
            raise self._defect

    def _bury(self, indent: str, actor: Actor, crash: SimulatedCrash) -> None:
        self._note(f"{indent}{actor.name}: dies at {crash.name}")
        actor.die()

    def _require_alive(self) -> None:
        """Let a dead process do nothing more, even where foreign code has swallowed its crash.

        Raises:
            SimulatedCrash: The process has died before.
        """
        crash = self._dead.get(len(self._running))
        if crash is not None:
            raise crash

    def _strike_lance(self, place: str) -> None:
        """Pass a place before or after a call of Lance, whose own requests no store of ours sees.

        Raises:
            OSError: As Lance raises it when storage fails.
            SimulatedCrash: The running actor's process dies here.
        """
        if self._strike(place, after=place.endswith(".done")) or self._draws(self._chances.lance):
            self.seen[f"failed at {place}"] += 1
            raise OSError(f"the object store did not answer (injected) at {place}")

    def table_of_writer(self) -> BaseTable:
        """Return the table for a new writer: in the seeds that are for it, every second one is buffered."""
        settings = self.settings
        if is_buffering(self.seed) and self.rng.random() >= _DURABLE:
            self.seen["buffered writer"] += 1
            settings = settings.model_copy(update={"writer": buffered(settings.writer)})
        table = self.table.with_settings(settings)
        table.ids = self.ids
        return table

    def notice(self) -> None:
        """Look at the table, and date what pylance made since the last call; called after every turn."""
        self.view.look(self.store.notice())
        for version in self.view.versions():
            self._version_seen.setdefault(version, self.clock.now())

    def frozen(self) -> dict[int, str]:
        """Return whether a person has frozen the table, as ``freezes`` models it."""
        active = FreezeStore(self.plain.store, IdSource(), clock=self.clock).active()
        return {FREEZE_KEY: FROZEN} if any(each.cause is FreezeCause.BY_HAND for each in active) else {}

    def old_versions(self, age_s: float) -> list[int]:
        """Return the table versions that are older than that, the newest of all left out."""
        existing = [entry["version"] for entry in self.plain.dataset().versions()][:-1]
        oldest = self.clock.now() - timedelta(seconds=age_s)
        return [version for version in existing if self._version_seen.get(version, self.clock.now()) < oldest]

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Let nothing interfere, for work that belongs to the simulation itself."""
        saved, self._chances = self._chances, Chances(0, 0, 0, 0, 0)
        try:
            yield
        finally:
            self._chances = saved

    def _trouble(self, moment: Moment) -> Callable[[Call], None]:
        def strike(call: Call) -> None:
            if not self._running:
                return
            if moment is Moment.BEFORE:
                self.clock.advance(self.call_takes_s)
                self._aim(call)
            if self._strike(f"{call.operation} {call.path[-40:]}", after=moment is Moment.AFTER):
                unavailable(call)

        return strike

    def _aim(self, call: Call) -> None:
        """Let a rival go first, where the running turn has read and is about to write under a condition."""
        kind = kind_of(call)
        if kind is None or not self._chances.aim or len(self._running) == _MAX_DEPTH:
            return
        if not self._draws(self._chances.aim * kind.rarity):
            return
        idle = [actor for actor in self.actors if actor not in self._running]
        known = self.contests.rivals(call.path)
        rivals = [actor for actor in idle if actor.contests is kind]
        rivals = rivals or [actor for actor in idle if actor.name in known] or idle
        if rivals:
            self.contested = kind
            self._interrupt(self.rng.choice(rivals))
            self.contested = None

    def _strike(self, place: str, *, after: bool) -> bool:
        """Interleave, crash or return whether the call shall fail.

        Raises:
            SimulatedCrash: The running actor's process dies here.
        """
        self._require_alive()
        chances, depth = self._chances, len(self._running)
        interleave = chances.interleave if depth < _MAX_DEPTH else 0.0
        drawn = self.rng.random()
        if drawn >= chances.crash + chances.fail + interleave or not self._befalls():
            return False
        if drawn < chances.crash:
            crash = SimulatedCrash(f"{'after' if after else 'before'} {place}")
            self._dead[depth] = crash
            raise crash
        if drawn < chances.crash + chances.fail:
            return True
        idle = [actor for actor in self.actors if actor not in self._running]
        if idle:
            self._interrupt(self.rng.choice(idle))
        return False

    def _draws(self, chance: float) -> bool:
        return self.rng.random() < chance and self._befalls()

    def _befalls(self) -> bool:
        """Count a trouble that the running turn has drawn, and return whether it happens; all do in inner turns."""
        if self.is_interrupting:
            return True
        self.troubles[self.turn] += 1
        return self._befalling is None or self.troubles[self.turn] in self._befalling

    def _interrupt(self, actor: Actor) -> None:
        """Let an actor take a turn in the middle of another one, which draws afterwards what it would without it."""
        state = self.rng.getstate()
        self.rng.seed(f"{self.seed} {self.turn} {self.troubles[self.turn]}")
        try:
            self._take_inner_turn(actor)
        finally:
            self.rng.setstate(state)

    def _take_inner_turn(self, actor: Actor) -> None:
        """Let an actor take its turn in the middle of another one.

        Calls from pylance back into Python come on pylance's own threads, on which pylance cannot be
        called again. There the turn gets a thread of its own, and the caller waits for it, so that
        still only one thing happens at a time.
        """
        if threading.get_ident() == self._thread:
            self.take_turn(actor)
            self.store.notice()  # Else what it wrote past the store would be as old as the first look at it.
            return

        def turn() -> None:
            outer, self._thread = self._thread, threading.get_ident()
            try:
                # The defect is kept, and raised again when the interrupted turn ends.
                with suppress(Exception):
                    self.take_turn(actor)
                self.store.notice()
            finally:
                self._thread = outer

        thread = threading.Thread(target=turn, name=f"turn-of-{actor.name}")
        thread.start()
        thread.join()

    def _note(self, line: str) -> None:
        self.trace.append(line)

    def _explains(self, error: Exception) -> bool:
        """Tell whether what was done to the table explains that it is frozen."""
        if not isinstance(error, FrozenError):
            return self.seen[OVERWRITTEN] > 0 and isinstance(error, InvalidRequestError) and "MemWAL" in str(error)
        causes = error.facts["causes"]
        assert isinstance(causes, list)  # noqa: S101 - whoever raises it lists them
        after_restore = _AFTER_RESTORE if self.restored else ()
        after_jump = _AFTER_JUMP if self.seen[JUMPED_BACK] else ()
        after_overwrite = _AFTER_OVERWRITE if self.seen[OVERWRITTEN] else ()
        return {FreezeCause.BY_HAND.value, *after_restore, *after_jump, *after_overwrite}.issuperset(causes)

    def _derived_rng(self) -> Rng:
        return seeded_rng(self.rng.getrandbits(64))
