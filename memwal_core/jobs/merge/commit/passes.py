"""The commit of one plan, and what a way to prepare it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from memwal_core.base_table import BaseTable, TableState
from memwal_core.base_table.keys.search_plan import SearchChoice
from memwal_core.clock import Clock
from memwal_core.errors import DuplicateKeysError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.jobs.merge.commit.own_files import OwnFiles
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.outcome import CheckLease, no_lease
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.rng import Rng
from memwal_core.settings import MergeSettings

MERGE_WRITTEN = Failpoint("merge.written")
MERGE_SEARCHED = Failpoint("merge.searched")
MERGE_COMMIT = Failpoint("merge.commit")
MERGE_COMMITTED = Failpoint("merge.committed")
MERGE_CLEANED = Failpoint("merge.cleaned")


class CommitOutcome(StrEnum):
    """How a commit ended."""

    COMMITTED = "committed"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """The end of a commit.

    Attributes:
        outcome: ``overtaken`` means that another merge was first, so that the winners no longer follow the table's
            progress (or schema) and none of them counts. Plan again.
        version: Newest table version seen.
        attempts: Tries, the successful one included.
        settled: The reply of the commit was lost, and reading back showed that it had landed.
        search: How the rows that were replaced were found; None if nothing was to be found.
    """

    outcome: CommitOutcome
    version: int
    attempts: int
    settled: bool = False
    search: SearchChoice | None = None


class ShareWatcher(Protocol):
    """Receives what was read; must return quickly."""

    def read(self, share: MergeShare) -> None:
        """Consecutive generations of a region were read and de-duplicated."""
        ...


@dataclass(frozen=True, slots=True)
class PassCommit:
    """The commit of a pass.

    Attributes:
        shares: What it contains; none of it counts if it was overtaken.
        leftovers: Files of this pass, relative to the table, that no version needs and that could not be removed.
        made: The version that it made, the newest one then; None if that is not known.
    """

    done: MergeCommit
    shares: tuple[MergeShare, ...]
    leftovers: tuple[str, ...] = ()
    made: TableState | None = None


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """What makes the rows of a pass part of the version after the one it was prepared on.

    Attributes:
        upserts: Rows that come.
        search: How the rows that go were found; None if there was nothing to find.
    """

    operation: Any
    superseded: int
    upserts: int
    search: SearchChoice | None = None


@dataclass(frozen=True, slots=True)
class CommitContext:
    """What carrying out plans works with.

    Attributes:
        sharing: Has units of work done in this process or on executors.
        opened: Has what a survey opened.
        guard: Called before each attempt to commit; raises if this merge must not act any more.
    """

    table: BaseTable
    settings: MergeSettings
    clock: Clock
    rng: Rng
    sharing: Sharing
    opened: OpenedGenerations
    guard: CheckLease = no_lease
    failpoints: Failpoints = NO_FAILPOINTS


class Preparation(Protocol):
    """A way to prepare one plan's rows. Nothing of it is visible before the strict commit."""

    @property
    def files(self) -> OwnFiles:
        """The files written so far."""
        ...

    def read(self) -> None:
        """Read the winners, and write what does not depend on the base table's version.

        An ``ObjectNotFoundError`` means that a generation vanished: plan again.
        """
        ...

    def shares(self) -> tuple[MergeShare, ...]:
        """Return what the next change will contain; nothing if other merges were first everywhere."""
        ...

    def follows(self, state: TableState) -> bool:
        """Tell whether at least one share still follows the progress and the schema of a version."""
        ...

    def keep_what_follows(self, state: TableState) -> None:
        """Drop shares that a rival made pointless; the next pass plans their regions again."""
        ...

    def change(self, state: TableState, attempt: int) -> PreparedChange:
        """Prepare the change of a version.

        A ``CorruptionError`` means that a key was written to several regions, or occurs several times in the
        base table.
        """
        ...


def share_follows(share: MergeShare, details: MemWalIndexDetails) -> bool:
    """Tell whether a share begins where its region's progress is."""
    return details.merged_generation(share.region_id) == share.merged


def repeated_keys(uri: str, version: int, *, rows: int, keys: int) -> DuplicateKeysError:
    """Return the error that says that more rows than keys would be superseded."""
    return DuplicateKeysError(
        "keys occur more than once in the base table, because more rows than keys would be superseded",
        remedy="start no merge and no garbage collection; follow docs/runbooks/duplicate-keys.md",
        table=uri,
        version=version,
        rows=rows,
        keys=keys,
    )
