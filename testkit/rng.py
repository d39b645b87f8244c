"""Randomness that repeats itself: a seed replays a run exactly."""

from __future__ import annotations

from memwal_core.rng import Rng


def seeded_rng(seed: int) -> Rng:
    """Return a source that repeats the same sequence for the same seed."""
    return Rng(seed)
