"""How many tables are maintained side by side, and for how long; part of ``memwal_core.settings``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Seconds


class FleetSettings(BaseModel):
    """How all tables of a registry are maintained together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parallel: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Tables whose cycles run at once, each in a process of its own unless Spark does its heavy work. "
        "More: waiting tables are sooner done, and the machine needs the memory of as many merges.",
    )
    deadline_s: Seconds = Field(
        default=3600.0,
        gt=0,
        description="Seconds after which the cycle of one table counts as overdue: its place goes to the next table, "
        "and no further step of it begins; after twice as long its process is killed. Longer: larger tables are done "
        "in one cycle, and a table that hangs is noticed later.",
    )
    survey_parallel: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Tables that are asked at once whether they are due. More hides latency and takes more threads.",
    )
    survey_deadline_s: Seconds = Field(
        default=60.0,
        gt=0,
        description="Seconds in which a table has to tell whether it is due. After that it is overdue, which is "
        "reported, and left out. Longer: slow stores are not left out, and a look at all tables takes longer.",
    )
    remind_s: Seconds = Field(
        default=4 * 3600.0,
        gt=0,
        description="Seconds between two failed tasks of Airflow, and so two calls of people, for a table that cannot "
        "be opened; the first fails at once. Longer: fewer calls for one cause, and a missed one is repeated later.",
    )
