"""What a backup is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from memwal_core.jobs.request import Flag, JobInfo, JobRequest

if TYPE_CHECKING:
    from memwal_core.jobs.backup.report import CopyReport

_GUIDE = """
### Copy a table while it is written to

Copies one moment of a table to TARGET, a path or address on any store: the newest version of the base table with its
indexes, every recorded flushed MemTable, the WAL that is not flushed, region manifests, reservations, and the
maintenance record. Every row that was acknowledged before the copy began is in it. The copy needs nothing of the
original, shares no file with it, and has one version: older ones, tags and branches stay behind
([copies](copies.md)).

The copy is the same table. Moved or copied back to the original's address it simply goes on; at any other address
`memwal relocate TARGET` makes it at home first. For a second table beside the first one use `memwal clone`.

**When is it safe?** Beside writers, readers and jobs. Garbage collection and compaction wait meanwhile; if another
program deletes what the moment needs, another moment is taken. A run that was killed is continued by the next one with
the same TARGET. TARGET must be empty, or such a half-done copy.

**What do failures mean?** Exit code 5: the table is damaged, or the copy differs from what was copied; the error names
the file. Exit code 4: garbage collection or compaction is under way, or storage failed; run again.
"""


class CopyRequest(JobRequest):
    """What every copy of a table is asked for.

    Attributes:
        target: Path or address of the copy.
        target_options: Options of its object store; those of the table if empty, or of the environment if
            the table is on another kind of store.
    """

    target: Annotated[str, Flag("target", "TARGET", is_argument=True)] = Field(
        min_length=1, title="Target", description="Path or address of the copy; nothing may be there yet."
    )
    target_options: Annotated[dict[str, str], Flag("--target-option", "KEY=VALUE")] = Field(
        default_factory=dict,
        repr=False,
        title="Target options",
        description="Option of the target's object store under pylance's name.",
    )


class BackupRequest(CopyRequest):
    """Make a consistent, self-contained copy of a table while it is written to."""

    info: ClassVar[JobInfo[CopyReport]] = JobInfo(
        name="backup",
        summary="Copy one moment of a table, complete in itself, while writers write.",
        implementation="memwal_core.jobs.backup.job:BackupJob",
        runbook="docs/copies.md",
        guide=_GUIDE,
        exit_codes="3 the copy is complete already, 4 conflict or storage failure (try again), 5 it needs a person",
        acts_on_frozen=True,
        by_hand=True,
    )
