"""The places of a flush where a test lets something happen."""

from __future__ import annotations

from collections.abc import Callable

Reach = Callable[[str], None]
"""Called with the name of a place: before and after each call of Lance, whose requests no store of ours sees.

Before: ``flush.rows``, ``flush.commit``, ``flush.drop``, ``flush.hide``, ``flush.index``, ``flush.keys``; after: the
same with ``.done``. What is raised there is treated as if the call had raised it.
"""


def nowhere(place: str) -> None:
    """Pass a place without doing anything."""
    del place
