"""A table of LanceDB's client: opened by its table object, and maintained beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.jobs.checkpoint.report import CheckpointReport
from memwal_core.jobs.context import OpenTable, Progress, unwatched
from memwal_core.jobs.merge.report import MergeReport
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.opening import open_here
from memwal_core.reader import Consistency
from memwal_core.table import Table


@runtime_checkable
class ClientTable(Protocol):
    """What is used of ``lancedb.table.LanceTable``."""

    @property
    def uri(self) -> str:
        """Path or address of the table."""

    def latest_storage_options(self) -> Mapping[str, str] | None:
        """Return the options of its object store, newest credentials first."""

    def current_branch(self) -> str | None:
        """Return the branch that it shows; None for the main one."""

    def close_lsm_writers(self) -> None:
        """Flush what this object wrote, and give its regions back."""

    def checkout_latest(self) -> None:
        """Show the newest version from now on."""


class MaintainedTable(Table):
    """A table of LanceDB's client: reads and jobs of ours, with what the client's object must do before and after.

    All of ``Table`` is there. Reads see every row that the client has acknowledged (``durable``), unless a call says
    otherwise. ``merge`` and ``checkpoint`` also move the client's object to the newest version.

    Args:
        client: The table object; it stays usable.
        opened: The table.
    """

    def __init__(self, client: ClientTable, opened: OpenTable) -> None:
        super().__init__(opened, consistency=Consistency.DURABLE)
        self._client = client

    def merge(self) -> MergeReport:
        """Merge what is flushed into the base table; errors as for ``Table.run``."""
        report: MergeReport = self.run(MergeRequest())
        self._client.checkout_latest()
        return report

    def checkpoint(
        self,
        *,
        regions: Sequence[RegionId] = (),
        fence: bool = False,
        dry_run: bool = False,
        progress: Progress = unwatched,
    ) -> CheckpointReport:
        """Close the writers of the client's object, then flush and merge until nothing waits.

        Arguments and errors as for ``Table.checkpoint``. The client opens its writers again at its next write.
        """
        if not dry_run:
            self._client.close_lsm_writers()
        report = super().checkpoint(regions=regions, fence=fence, dry_run=dry_run, progress=progress)
        if not dry_run:
            self._client.checkout_latest()
        return report


def maintained(table: Any) -> MaintainedTable:  # noqa: ANN401 - the client need not be installed
    """Open the table of a table object of LanceDB's synchronous client.

    Settings come from the environment, as for commands; storage options from the table object, then from the
    environment.

    Args:
        table: As ``lancedb.connect(...).open_table(...)`` returns it.

    Raises:
        InvalidRequestError: This is another object, a table of LanceDB's cloud, or it shows a branch.
        ObjectNotFoundError: The table was dropped.
    """
    if not isinstance(table, ClientTable) or not isinstance(table.uri, str):
        raise InvalidRequestError(
            "this is not a table object of LanceDB's synchronous client",
            remedy="give what open_table or create_table of a lancedb.connect(...) returned; for others, call "
            "memwal_core.open with the table's address",
            type=type(table).__name__,
        )
    if table.current_branch() is not None:
        raise InvalidRequestError(
            "the table object shows a branch, and MemWAL writes to the main one",
            remedy="open the table again without a branch",
            branch=table.current_branch(),
        )
    opened = open_here(table.uri, dict(table.latest_storage_options() or {}))
    return MaintainedTable(table, opened.opened)
