"""The bounds of settings that have no smaller bound of their own; part of ``memwal_core.settings``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST = 1 << 53
"""Lance and Arrow count in 64 bits. Up to here a few counts can be multiplied, and each is exact as a float as well."""

LONGEST_S = 100 * 365 * 86_400.0
"""A century. Dates, locks and threads count no further than a few: beyond that, waiting and subtracting are errors."""

Count = Annotated[int, Field(le=MOST)]
"""For settings that count rows, bytes or things."""

Seconds = Annotated[float, Field(le=LONGEST_S)]
"""For settings in seconds."""
