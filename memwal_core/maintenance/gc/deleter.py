"""The hands of a garbage collection: every change it makes to a table goes through here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memwal_core.errors import CorruptionError, FencedError, MemwalError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.maintenance.gc.frozen import Freezes
from memwal_core.maintenance.gc.items import Item, Kind, Tally
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.state import BaseState, GcState
from memwal_core.maintenance.gc.survey import Surveyor
from memwal_core.maintenance.outcome import CheckLease
from memwal_core.manifest import ManifestStore
from memwal_core.register import VersionedRegister
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import generation_path
from memwal_core.storage.protocol import StoreKind

_BASE_TABLE_DIRECTORIES = ("data", "_deletions", "_indices", "_transactions", "_versions")
_SYNC_ATTEMPTS = 5

_log = logging.getLogger(__name__)

_Thing = TypeVar("_Thing")
_Planner = Callable[[GcState, Policy], list[Item]]


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that could not be collected; a later run tries again.

    Attributes:
        path: Of the item.
        error: What went wrong.
    """

    path: str
    error: str


class Deleter:
    """Drains and deletes what was planned, within bounds, and keeps count. Safe for threads.

    Args:
        surveyor: Looks again before things go.
        policy: The policy of the plan; its moment stays, so that nothing becomes free in between.
        base: The base table as planned on; its retained versions are taken over by later looks.
        check_lease: Called before every commit and every deletion.
    """

    def __init__(self, surveyor: Surveyor, policy: Policy, base: BaseState, check_lease: CheckLease) -> None:
        """Keep the parts."""
        self._surveyor = surveyor
        self._policy = policy
        self._base = base
        self._check_lease = check_lease
        self._lock = threading.Lock()
        self.done: dict[Kind, Tally] = {}
        """What was drained and deleted so far."""
        self.failures: list[Failure] = []

    @property
    def manifests(self) -> ManifestStore:
        """The region manifests."""
        return self._surveyor.manifests

    def guard(self) -> None:
        """Require the right to change the table.

        Raises:
            FencedError: Somebody else has the lease now. Stop.
        """
        self._check_lease()

    def fresh_base(self) -> BaseState:
        """Look at the newest version of the base table."""
        return self._surveyor.base(self._base)

    def plan_again(self, plan: _Planner, regions: Collection[RegionId]) -> list[Item]:
        """Plan some regions anew from what is there now, freezes included."""
        state = self._surveyor.regions(regions, self.fresh_base())
        return Freezes.of(state).laid_over(plan(state, self._policy))

    def recorded_paths(self, regions: Collection[RegionId]) -> Mapping[RegionId, frozenset[str]]:
        """Read which directories the newest manifests record; a region that cannot be read is missing."""
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
        """Act on several things at once.

        Raises:
            FencedError: The right to change the table is gone; what had not begun was not begun.
        """
        map_concurrently(act, things, self._policy.gc.concurrency)

    def attempt(self, items: Sequence[Item], act: Callable[[], None]) -> bool:
        """Act, and turn a failure into an entry of the report: the items stay for a later run.

        Returns:
            Whether it succeeded.

        Raises:
            FencedError: The right to change the table is gone.
        """
        try:
            act()
        except FencedError:
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

    def sync_base_table(self) -> None:
        """Make the base table durable before the only other copy of merged rows is given up.

        Lance syncs nothing on a local disk, so a merge commit may still be in memory only.

        Raises:
            UnavailableError: Storage failed.
            ObjectNotFoundError: Others kept removing files meanwhile.
        """
        for directory in _BASE_TABLE_DIRECTORIES:
            self._sync(directory)

    def delete_object(self, item: Item) -> None:
        """Delete one object; one that is already gone is success."""
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
        """Refuse what a symbolic link on a local disk leads out of the table.

        Raises:
            CorruptionError: A part of the path is a link.
        """
        store = self._surveyor.store
        if store.kind is not StoreKind.LOCAL:
            return
        found, expected = Path(store.uri_of(item.path)).resolve(), Path(store.uri).resolve() / item.path
        if found != expected:
            raise CorruptionError(
                "a symbolic link leads out of the place that garbage may be collected from",
                remedy="find out who made the link, and remove it by hand",
                path=item.path,
                leads_to=str(found),
            )

    def _sync(self, directory: str) -> None:
        for attempt in range(1, _SYNC_ATTEMPTS + 1):
            try:
                self._surveyor.store.sync_directory(directory)
            except ObjectNotFoundError:
                if attempt == _SYNC_ATTEMPTS:
                    raise
                continue  # A staged or obsolete file went away while the directory was walked.
            return

    def _fail(self, path: str, error: MemwalError) -> None:
        _log.warning("not collected, a later run tries again [path=%s]: %s", path, error)
        with self._lock:
            self.failures.append(Failure(path, str(error)))
