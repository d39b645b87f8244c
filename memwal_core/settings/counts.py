"""The bound of all settings that count rows, bytes or things; part of ``memwal_core.settings``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST = 1 << 53
"""Lance and Arrow count in 64 bits. Up to here a few counts can be multiplied, and each is exact as a float as well."""

Count = Annotated[int, Field(le=MOST)]
"""For settings without a smaller bound of their own."""
