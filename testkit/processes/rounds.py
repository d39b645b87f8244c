"""How often processes are killed: few times by default, as often as asked for with ``KILL_ROUNDS``."""

from __future__ import annotations

import os


def rounds(default: int) -> int:
    """Return ``KILL_ROUNDS`` of the environment, or the default."""
    return int(os.environ.get("KILL_ROUNDS") or default)
