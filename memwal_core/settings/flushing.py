"""When rows of regions without a writer are flushed; part of ``memwal_core.settings``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Seconds
from memwal_core.settings.retention import DAY_S


class FlushSettings(BaseModel):
    """When the job ``flush`` takes a writer for dead, and flushes the rows that it left in its WAL.

    A flush claims the region. If the writer lives after all, it loses no acknowledged row, but it must be opened
    again; until then its writes fail.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_age_s: Seconds = Field(
        default=600.0,
        ge=0,
        description="Seconds that rows wait in a WAL before the job looks for their writer, and seconds between two "
        "looks of a maintenance cycle. Shorter: fresher base table, more requests and more small generations.",
    )
    quiet_s: Seconds = Field(
        default=3600.0,
        gt=0,
        description="Seconds without a new WAL entry or manifest version after which a writer of ours that holds "
        "unflushed rows counts as dead. A living one flushes by itself after `writer.max_memtable_age_s`, so at least "
        "twice that is waited. Raise it for writers with longer ages, or without `background_flush`. Longer: rows of "
        "crashed writers reach the base table later.",
    )
    foreign_quiet_s: Seconds | None = Field(
        default=7 * DAY_S,
        gt=0,
        description="The same for writers of other programs (pylance, LanceDB), which stay silent for as long as "
        "they have nothing to write and leave no word when they end. A living one that is fenced refuses every write "
        "until it is opened again (LanceDB: `close_lsm_writers()`). Must exceed the longest pause between two writes "
        "of a process that stays open. `null`: never.",
    )
    max_wait_s: Seconds | None = Field(
        default=None,
        gt=0,
        description="Seconds after which rows are flushed although their writer lives, which fences it. `null`: never.",
    )
    concurrency: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Regions flushed at once. More finishes sooner; each takes the memory of its unflushed rows.",
    )
