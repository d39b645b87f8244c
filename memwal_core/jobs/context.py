"""What jobs work with: one opened table, and what the runner gives to one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from memwal_core.base_table import BaseTable, Sources
from memwal_core.clock import Clock, SystemClock
from memwal_core.coordination.freeze import FreezeStore
from memwal_core.coordination.freeze.watch import HistoryWatch
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseStore, LeaseTicket
from memwal_core.coordination.ledger import Ledger, RunRecord
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY
from memwal_core.jobs.outcome import CheckLease, no_lease
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.region import ManifestStore
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import Settings, load_settings
from memwal_core.storage import StoreKind, open_store

Progress = Callable[[str, int, int | None], None]
"""Is told a stage, how much of it is done, and of how much in all (None = unknown); must return quickly."""


def unwatched(_stage: str, _done: int, _total: int | None) -> None:
    """Ignore progress."""


_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0

_JUST_OPENED_S = 600.0
"""For so long a table counts as there: most processes open one, and end."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """One opened table with the registers beside it.

    Attributes:
        freezes: What was seen of the table, and what froze it.
        opened_s: Monotonic time at which it was opened.
    """

    base: BaseTable
    manifests: ManifestStore
    ledger: Ledger
    leases: LeaseStore
    freezes: FreezeStore
    opened_s: float

    @classmethod
    def at(
        cls,
        uri: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        even_if_damaged: bool = False,
    ) -> Self:
        """Open a table that exists; arguments and errors as for ``memwal_core.open``.

        With ``even_if_damaged``, a table whose newest version cannot be read is opened, too; reading it then raises
        the ``CorruptionError``.
        """
        settings = settings if settings is not None else load_settings()
        sources = Sources(clock if clock is not None else SystemClock(), rng if rng is not None else system_rng())
        store = open_store(uri, storage_options=storage_options, settings=settings.storage)
        try:
            return cls.of(BaseTable.open(uri, settings=settings, store=store, sources=sources))
        except CorruptionError:
            if not even_if_damaged:
                raise
            return cls.of(BaseTable(store, settings=settings, sources=sources))

    @classmethod
    def of(cls, base: BaseTable) -> Self:
        """Open the registers beside a table; nothing is read."""
        store, ids, rng = base.store, base.ids, base.rng
        settings, clock = base.settings, base.clock
        freezes = FreezeStore(store, ids, clock=clock)
        manifests = ManifestStore(store, ids, settings=settings.storage, clock=clock, rng=rng)
        return cls(
            base=base,
            manifests=manifests.remembering(freezes.vanished),
            ledger=Ledger(store, ids, settings=settings.ledger, clock=clock),
            leases=LeaseStore(store, ids, settings=settings.lease, clock=clock, rng=rng),
            freezes=freezes,
            opened_s=clock.monotonic(),
        )

    def require_there(self) -> None:
        """Refuse to write below an address whose table was dropped: LanceDB's client would list it again.

        A local file system is asked each time, where it costs nothing; others once the table has been open for a while.

        Raises:
            ObjectNotFoundError: It was dropped.
        """
        store = self.base.store
        if store.kind is StoreKind.LOCAL:
            is_there = Path(self.uri, TABLE_VERSIONS_DIRECTORY).is_dir()
        elif self.clock.monotonic() - self.opened_s < _JUST_OPENED_S:
            return
        else:
            is_there = TABLE_VERSIONS_DIRECTORY in store.list_directories("")
        if not is_there:
            raise ObjectNotFoundError(
                "the table is gone: it was dropped or moved since it was opened",
                remedy="check the address; `memwal tables DIRECTORY` finds tables",
                table=self.uri,
            )

    @property
    def uri(self) -> str:
        """Path or address of the table."""
        return self.base.uri

    @property
    def settings(self) -> Settings:
        """All settings."""
        return self.base.settings

    @property
    def clock(self) -> Clock:
        """Time."""
        return self.base.clock

    def new_run(self, key: JobKey, holder: str, fencing_token: int = 0) -> RunRecord:
        """Return the record of a run that begins now; a token of 0 means that it holds no lease."""
        return RunRecord(key, self.base.ids.commit_id().hex(), holder, self.clock.now(), fencing_token)

    def new_holder(self) -> str:
        """Return a name for a run that was not given one; no other run has it."""
        return self.base.ids.commit_id().hex()


@dataclass(frozen=True, slots=True)
class JobContext:
    """What one run of a job works with.

    Attributes:
        guard: Called before each write; raises ``FencedError`` when another run has the lease.
        executors: What does heavy work outside of this process; None = nothing does.
        ticket: The lease that the run holds; None if it holds none.
        watch: Compares what the run reads with what was seen before; None for a dry run.
        failpoints: Hit at the places that the job names; for tests.
    """

    opened: OpenTable
    guard: CheckLease = no_lease
    holder: str = ""
    executors: Executors | None = None
    progress: Progress = unwatched
    ticket: LeaseTicket | None = None
    watch: HistoryWatch | None = None
    failpoints: Failpoints = NO_FAILPOINTS

    @property
    def base(self) -> BaseTable:
        """The base table."""
        return self.opened.base

    @property
    def manifests(self) -> ManifestStore:
        """Its region manifests."""
        return self.opened.manifests

    @property
    def settings(self) -> Settings:
        """All settings."""
        return self.opened.settings

    @property
    def clock(self) -> Clock:
        """Time."""
        return self.opened.clock

    def back_off(self, attempt: int) -> None:
        """Wait after a lost attempt; the wait grows and spreads with each one."""
        back_off(self.clock, self.base.rng, attempt)


def back_off(clock: Clock, rng: Rng, attempt: int) -> None:
    """Wait a random time that grows with the attempts, so that rivals do not meet again."""
    clock.sleep(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * rng.random())
