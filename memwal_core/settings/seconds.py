"""The bound of all settings in seconds; part of ``memwal_core.settings``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

LONGEST_S = 100 * 365 * 86_400.0
"""A century. Dates, locks and threads count no further than a few: beyond that, waiting and subtracting are errors."""

Seconds = Annotated[float, Field(le=LONGEST_S)]
"""For settings without a smaller bound of their own."""
