"""The only place from which a garbage collection changes a table."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memwal_core.errors import CorruptionError, FencedError, FrozenError, MemwalError
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.context import Progress, unwatched
from memwal_core.jobs.gc.frozen import Freezes
from memwal_core.jobs.gc.items import Item, Kind, Tally
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import BaseState, GcState
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.outcome import CheckLease
from memwal_core.region import ManifestStore
from memwal_core.register import VersionedRegister
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import StoreKind

_log = logging.getLogger(__name__)

_Thing = TypeVar("_Thing")
_Planner = Callable[[GcState, Policy], list[Item]]


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that could not be collected; a later run tries again."""

    path: str
    error: str


class Deleter:
    """Drains and deletes what was planned, within bounds, and counts it. Safe for threads.

    Args:
        surveyor: Reads the table again before anything is deleted.
        policy: The policy of the plan; its time stays fixed, so that nothing becomes free in between.
        base: The base table as planned on; later reads reuse its retained versions.
        check_lease: Called before every commit and every deletion.
        progress: Is told how much of each kind is collected.
    """

    def __init__(
        self,
        surveyor: GcSurveyor,
        policy: Policy,
        base: BaseState,
        check_lease: CheckLease,
        progress: Progress = unwatched,
    ) -> None:
        self._surveyor = surveyor
        self._policy = policy
        self._base = base
        self._check_lease = check_lease
        self._progress = progress
        self._lock = threading.Lock()
        self.done: dict[Kind, Tally] = {}
        """Everything drained and deleted so far."""
        self.failures: list[Failure] = []

    @property
    def manifests(self) -> ManifestStore:
        """The region manifests."""
        return self._surveyor.manifests

    def guard(self) -> None:
        """Require the right to change the table; ``FencedError`` means that another process holds the lease now."""
        self._check_lease()

    def fresh_base(self) -> BaseState:
        """Read the newest version of the base table."""
        return self._surveyor.base(self._base)

    def plan_again(self, plan: _Planner, regions: Collection[RegionId]) -> list[Item]:
        """Plan some regions anew on their present state, freezes included."""
        state = self._surveyor.regions(regions, self.fresh_base())
        return Freezes.of(state).laid_over(plan(state, self._policy))

    def recorded_paths(self, regions: Collection[RegionId]) -> Mapping[RegionId, frozenset[str]]:
        """Read which directories the newest manifests record; a region whose manifest cannot be read is left out."""
        found: dict[RegionId, frozenset[str]] = {}

        def read(region_id: RegionId) -> None:
            try:
                manifest = self.manifests.load(region_id)
            except MemwalError as error:
                self._fail(str(region_id), error)
                return
            found[region_id] = frozenset(generation_path(region_id, each.path) for each in manifest.flushed_generations)

        self.each(sorted(regions), read)
        return found

    def each(self, things: Sequence[_Thing], act: Callable[[_Thing], None]) -> None:
        """Act on several things at once; after a ``FencedError`` nothing further is begun."""
        map_concurrently(act, things, self._policy.gc.concurrency)

    def attempt(self, items: Sequence[Item], act: Callable[[], None]) -> bool:
        """Act, and turn errors into failures of the report: the items stay for a later run.

        Raises:
            FencedError, FrozenError: Nothing further may be done.
        """
        try:
            act()
        except (FencedError, FrozenError):
            raise
        except MemwalError as error:
            for item in items:
                self._fail(item.path, error)
            return False
        return True

    def count(self, items: Sequence[Item]) -> None:
        """Note items as done."""
        with self._lock:
            for item in items:
                self.done[item.kind] = self.done.get(item.kind, Tally()).plus(item)
            told = {item.kind: self.done[item.kind].items for item in items}
        for kind, number in told.items():
            self._progress(f"{kind.value} collected", number, None)

    def take_over(self, done: Mapping[Kind, Tally], failures: Sequence[Failure]) -> None:
        """Note what another process did of the same plan."""
        with self._lock:
            for kind, tally in done.items():
                self.done[kind] = self.done.get(kind, Tally()).added(tally)
            self.failures.extend(failures)

    def sync_base_table(self) -> None:
        """Make the base table durable before the only other copy of merged rows is given up.

        Commits of ours are durable already; another program's may still be in memory only.
        """
        self._surveyor.table.make_durable()

    def delete_object(self, item: Item) -> None:
        """Delete one object; an object that is already gone is success."""
        self._delete([item], lambda: self._surveyor.store.delete(item.path))

    def delete_directory(self, item: Item) -> None:
        """Delete a directory with all that is in it."""
        self._delete([item], lambda: self._surveyor.store.delete_directory(item.path))

    def delete_manifest_versions(self, region_id: RegionId, items: Sequence[Item]) -> None:
        """Delete manifest versions of one region, the oldest first."""
        keep_from = max(item.number for item in items) + 1
        self._delete(items, lambda: self.manifests.delete_versions_before(region_id, keep_from, before_each=self.guard))

    def delete_register_versions(self, items: Sequence[Item]) -> None:
        """Delete versions of one register, the oldest first."""
        directory, _, name = items[0].path.rpartition("/")
        register = VersionedRegister(self._surveyor.store, directory, name[name.index(".") :])
        keep_from = max(item.number for item in items) + 1
        self._delete(items, lambda: register.delete_before(keep_from, before_each=self.guard))

    def _delete(self, items: Sequence[Item], act: Callable[[], object]) -> None:
        def delete() -> None:
            for item in items:
                self._require_inside(item)
            self.guard()
            act()

        if self.attempt(items, delete):
            self.count(items)
            _log.debug("deleted [path=%s, items=%d, reason=%s]", items[-1].path, len(items), items[-1].reason.value)

    def _require_inside(self, item: Item) -> None:
        """Refuse a path through a symbolic link on a local disk, which could lead out of the table."""
        store = self._surveyor.store
        if store.kind is not StoreKind.LOCAL:
            return
        found, expected = Path(store.uri_of(item.path)).resolve(), Path(store.uri).resolve() / item.path
        if found != expected:
            raise CorruptionError(
                "a symbolic link leads out of the table, where garbage must not be collected",
                remedy="find out which program made the link, and remove it by hand",
                path=item.path,
                leads_to=str(found),
            )

    def _fail(self, path: str, error: MemwalError) -> None:
        _log.warning("not collected, a later run tries again [path=%s]: %s", path, error)
        with self._lock:
            self.failures.append(Failure(path, str(error)))
