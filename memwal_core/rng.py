"""Randomness as an argument, so that tests can give a source that repeats itself."""

from __future__ import annotations

import random
from typing import NoReturn

from memwal_core.errors import InvalidRequestError

Rng = random.Random


class _SystemRng(random.SystemRandom):
    """Tables, their views and their writers hold one, so that this is the error of whoever pickles any of them."""

    def __reduce__(self) -> NoReturn:
        raise InvalidRequestError(
            "a table, and what reads or writes it, cannot be pickled or copied",
            remedy="hand over its address, and call memwal_core.open() where it is needed",
        )


def system_rng() -> Rng:
    """Return the operating system's random source, for production."""
    return _SystemRng()
