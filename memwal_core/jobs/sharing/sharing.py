"""One run's work in shares: one share in this process, many on executors, by the same function."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Generic, Self, TypeVar

from memwal_core.coordination.freeze.memory import Memory
from memwal_core.coordination.freeze.watch import HistoryWatch
from memwal_core.coordination.lease import LeaseKeeper, LeaseTicket
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext, OpenTable, Progress
from memwal_core.jobs.outcome import CheckLease
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.executors import EndT, PieceT
from memwal_core.jobs.sharing.place import Engine, SizeBound, Work, Workplace, choose_place, no_executors
from memwal_core.region import ManifestObserver, RegionManifest
from memwal_core.settings import ExecutorSettings, Settings
from memwal_core.storage.concurrent import map_concurrently

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Task = Callable[[JobContext, ItemT], ResultT]
"""Does one share of a job's work, in any process: a function of a module, for it travels by its name."""

Spread = Callable[[JobContext, ItemT], Iterable[tuple[int, PieceT]]]
"""Reads one share, and yields what it found in pieces, each with the number of its part: a function of a module."""

Gather = Callable[[Iterable[PieceT]], ResultT]
"""Returns what the pieces of one part come to."""

_log = logging.getLogger(__name__)


class Sharing:
    """Divides the work of one run, and has it done where it is done best."""

    def __init__(self, context: JobContext, engine: Engine, request: JobRequest) -> None:
        self._context = context
        self.engine = engine
        """Where the work is asked to be done."""
        self._job = request.info.name
        self._dry_run = request.dry_run
        self._executors = context.executors
        self.place: Workplace | None = None
        """Where the work is done, once that is chosen."""

    @property
    def has_executors(self) -> bool:
        """Whether there is anything but this process to do the work."""
        return self._executors is not None

    def choose(self, work: Work) -> Workplace:
        """Choose where the run does its work; the first choice stays.

        Raises:
            InvalidRequestError: Executors were asked for, and there are none.
        """
        if self.place is None:
            self.place = self.judge(work)
        return self.place

    def judge(self, work: Work, bound: SizeBound | None = None) -> Workplace:
        """Return where some work is to be done; ``bound`` as for ``choose_place``.

        Raises:
            InvalidRequestError: Executors were asked for, and there are none.
        """
        reachable = self.has_executors
        place = choose_place(work, self.engine, self.settings, reachable=reachable, bound=bound)
        if place.on_executors and not reachable and not self._dry_run:
            raise no_executors(self._job, self._context.opened.uri)
        return place

    def at(self, place: Workplace) -> Self:
        """Return the same for a part of the run that is done at this place."""
        there = copy.copy(self)
        there.place = place
        return there

    @property
    def on_executors(self) -> bool:
        """Whether executors do the work; a dry run without any does it here."""
        return self.place is not None and self.place.on_executors and self._executors is not None

    @property
    def progress(self) -> Progress:
        """Is told how far the run is."""
        return self._context.progress

    @property
    def settings(self) -> ExecutorSettings:
        """When executors are used, and how work is divided between them."""
        return self._context.settings.executors

    @property
    def slots(self) -> int:
        """Shares that are done at once."""
        return self._executors.slots if self.on_executors and self._executors is not None else 1

    @property
    def may_write_elsewhere(self) -> bool:
        """Whether executors may change the table: only under a lease, which they check themselves."""
        return self.on_executors and self._context.ticket is not None

    def divide(self, items: Sequence[ItemT], per_slot: int | None = None) -> list[tuple[ItemT, ...]]:
        """Divide items into shares of about equal number: one in this process, several per slot of the executors.

        Args:
            items: What is divided.
            per_slot: How many for each slot, where a share costs much in itself; as the settings say if None.
        """
        if not items:
            return []
        several = per_slot if per_slot is not None else self.settings.shares_per_slot
        most = self.slots * several if self.on_executors else 1
        count = min(most, len(items))
        bounds = [len(items) * number // count for number in range(count + 1)]
        return [tuple(items[begin:end]) for begin, end in pairwise(bounds)]

    def run(
        self,
        stage: str,
        task: Task[ItemT, ResultT],
        shares: Sequence[ItemT],
        *,
        regions: Callable[[ItemT], Sequence[RegionId]] | None = None,
    ) -> list[ResultT]:
        """Do all shares, and return what their tasks returned, in order.

        Args:
            stage: What is done, for people.
            task: Does one share.
            shares: On executors, each may be done several times, see ``Executors.map``.
            regions: Of a share whose regions the task changes: what the run knows of them goes with the share, and what
                the task reads is compared with it before each change. What other tasks read of regions is compared here
                when they have ended.
        """
        if not self.on_executors or self._executors is None:
            return [task(self._context, share) for share in shares]
        watch = self._context.watch
        given = [
            (share, watch.known_of(set(regions(share))) if watch is not None and regions is not None else None)
            for share in shares
        ]
        _log.info("on executors: %s [table=%s, shares=%d]", stage, self._context.opened.uri, len(given))
        with self._lease_kept():
            done = self._executors.map(f"{self._job}: {stage}", partial(_do_share, self._origin(), task), given)
        return self._found(done)

    def stream(self, stage: str, task: Task[ItemT, Iterable[ResultT]], shares: Sequence[ItemT]) -> Iterator[ResultT]:
        """Do all shares, and yield what their tasks yield, in order: in this process as soon as they do.

        Args:
            stage: What is done, for people.
            task: Does one share, and changes no region.
            shares: As for ``run``.
        """
        if not self.on_executors:
            for share in shares:
                yield from task(self._context, share)
            return
        for found in self.run(stage, partial(_listed, task), shares):
            yield from found

    def run_groups(
        self,
        task: Task[ItemT, ResultT],
        groups: Mapping[str, Sequence[ItemT]],
        then: Callable[[str, list[ResultT]], EndT],
    ) -> list[EndT]:
        """Do the shares of all stages, and go on here with each stage as soon as it is done.

        In this process one stage comes after the other.

        Args:
            task: Does one share, and changes no region.
            groups: The shares of each stage.
            then: Gets a stage and what its tasks returned; several may run at once.

        Returns:
            What ``then`` returned for each stage, in their order.
        """
        if not self.on_executors or self._executors is None:
            return [then(stage, [task(self._context, each) for each in shares]) for stage, shares in groups.items()]
        uri, count = self._context.opened.uri, sum(map(len, groups.values()))
        _log.info("on executors: %s [table=%s, shares=%d]", ", ".join(groups), uri, count)
        given = {f"{self._job}: {stage}": [(each, None) for each in shares] for stage, shares in groups.items()}
        stages = dict(zip(given, groups, strict=True))
        with self._lease_kept():
            return self._executors.map_groups(
                partial(_do_share, self._origin(), task),
                given,
                lambda name, done: then(stages[name], self._found(done)),
            )

    def _found(self, done: Sequence[_Done[ResultT]]) -> list[ResultT]:
        """Return what shares came to, once what they read of regions is compared."""
        map_concurrently(
            lambda read: self._context.manifests.notify(*read),
            [read for each in done for read in each.read],
            self._context.settings.storage.concurrency,
        )
        return [each.found for each in done]

    def exchange(
        self,
        stage: str,
        spread: Spread[ItemT, PieceT],
        shares: Sequence[ItemT],
        gather: Gather[PieceT, ResultT],
        parts: int,
    ) -> list[ResultT]:
        """Read all shares, bring together what belongs together, and return what each part comes to, in order.

        In this process, memory holds the pieces of all parts.

        Args:
            stage: What is done, for people.
            spread: Reads one share, and changes nothing.
            shares: What to read.
            gather: Returns what the pieces of one part come to.
            parts: How many parts there are, at least one.
        """
        if not self.on_executors or self._executors is None:
            pieces: list[list[PieceT]] = [[] for _ in range(parts)]
            for share in shares:
                for part, piece in spread(self._context, share):
                    pieces[part].append(piece)
            return [gather(each) for each in pieces]
        uri = self._context.opened.uri
        _log.info("on executors: %s [table=%s, shares=%d, parts=%d]", stage, uri, len(shares), parts)
        with self._lease_kept():
            return self._executors.exchange(
                f"{self._job}: {stage}", partial(_spread_share, self._origin(), spread), shares, gather, parts
            )

    def _origin(self) -> _Origin:
        table = self._context.opened
        return _Origin(
            table.uri, dict(table.base.storage_options), table.settings, self._job, self._context.holder,
            self._context.ticket,
        )  # fmt: skip

    @contextmanager
    def _lease_kept(self) -> Iterator[None]:
        """Renew the lease while this process only waits."""
        table, ticket = self._context.opened, self._context.ticket
        if ticket is None:
            yield
            return
        with LeaseKeeper(table.leases.resume(ticket), table.settings.lease.renew_after_s / 2):
            yield


@dataclass(frozen=True, slots=True)
class _Origin:
    """What another process needs to go on with a run."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    settings: Settings
    job: str
    holder: str
    ticket: LeaseTicket | None


@dataclass(frozen=True, slots=True)
class _Done(Generic[ResultT]):
    """What a task returned, and the region manifests that it read, which the run still has to compare."""

    found: ResultT
    read: tuple[tuple[RegionManifest, bytes], ...]


class _Reads(ManifestObserver):
    """Keeps the region manifests that are read."""

    def __init__(self) -> None:
        self.manifests: list[tuple[RegionManifest, bytes]] = []

    def on_manifest(self, manifest: RegionManifest, data: bytes) -> None:
        self.manifests.append((manifest, data))

    def on_regions(self, listed: Collection[RegionId]) -> None:
        """The run lists regions itself."""

    def on_missing(self, regions: Collection[RegionId]) -> None:
        """So it does here."""


def _listed(task: Task[ItemT, Iterable[ResultT]], context: JobContext, share: ItemT) -> list[ResultT]:
    """Return what a task yields, to be sent."""
    return list(task(context, share))


def _do_share(origin: _Origin, task: Task[ItemT, ResultT], given: tuple[ItemT, Memory | None]) -> _Done[ResultT]:
    """Do one share in another process, under the same guards as in the process where the run began."""
    share, known = given
    opened = OpenTable.at(origin.uri, storage_options=origin.storage_options, settings=origin.settings)
    guards = [_lease_guard(opened, origin.ticket)]
    watch = None
    reads = _Reads()
    if known is None:
        opened = replace(opened, manifests=opened.manifests.observed(reads))
    else:
        watch = HistoryWatch(opened.base, opened.manifests, opened.freezes, origin.job)
        compared = watch.resume(known)
        opened = replace(opened, base=compared.base, manifests=compared.manifests)
        guards.insert(0, watch.check_record)

    def guard() -> None:
        for check in guards:
            check()

    found = task(JobContext(opened, guard, origin.holder, ticket=origin.ticket, watch=watch), share)
    if watch is not None:
        watch.check()
    return _Done(found, tuple(reads.manifests))


def _spread_share(origin: _Origin, spread: Spread[ItemT, PieceT], share: ItemT) -> Iterable[tuple[int, PieceT]]:
    """Read one share in another process. It changes nothing, so it has no guards."""
    opened = OpenTable.at(origin.uri, storage_options=origin.storage_options, settings=origin.settings)
    return spread(JobContext(opened, holder=origin.holder), share)


def _lease_guard(opened: OpenTable, ticket: LeaseTicket | None) -> CheckLease:
    """Return what checks the lease of the run; it is read with the first check."""
    checks: list[CheckLease] = []

    def check() -> None:
        if ticket is None:
            return
        if not checks:
            checks.append(opened.leases.resume(ticket).check)
        checks[0]()

    return check
