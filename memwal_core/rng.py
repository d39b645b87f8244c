"""Randomness as an argument: a seeded source replays a run exactly."""

from __future__ import annotations

import random

Rng = random.Random


def system_rng() -> Rng:
    """Return the operating system's random source, for production."""
    return random.SystemRandom()


def seeded_rng(seed: int) -> Rng:
    """Return a source that repeats the same sequence for the same seed."""
    return random.Random(seed)
