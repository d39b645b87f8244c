"""How the status page reads tables; part of ``memwal_core.settings``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Seconds


class PageSettings(BaseModel):
    """How much the status page reads, and how long it waits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fresh_s: Seconds = Field(
        default=30.0,
        ge=0,
        description="Seconds for which the overview shows a table as it was last read. Each table is read once in that "
        "time, however many people look. Longer: fewer requests to the stores, and older states, which the page dates.",
    )
    parallel: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Tables that the page reads at once. More: a large fleet is shown sooner, and takes more threads.",
    )
    deadline_s: Seconds = Field(
        default=30.0,
        gt=0,
        description="Seconds after which a table counts as not answering: its place goes to the next one, and its last "
        "known state is shown. Longer: slow stores are waited for, and outages are shown later.",
    )
    deep_s: Seconds = Field(
        default=600.0,
        ge=0,
        description="Seconds after which the doctor looks at a table again in depth, beside the page, if people look "
        "at it: every object is listed, and flushed MemTables are opened. Longer: fewer requests to the stores, and "
        "damage that only such a look sees is shown later; 0: never.",
    )
    patience_s: Seconds = Field(
        default=3.0,
        gt=0,
        description="Seconds that the overview waits for tables that are being read. It then shows the others, and the "
        "last known state of these. Longer: more of the first overview is there at once, and it comes later.",
    )
