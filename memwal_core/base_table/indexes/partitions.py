"""How evenly the vectors of an IVF index are spread over its partitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionSizes:
    """One IVF index: vectors per partition, over all its segments."""

    name: str
    sizes: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """Largest partition over smallest; see ``imbalance``."""
        return imbalance(self.sizes)


def imbalance(sizes: Sequence[int]) -> float:
    """Return the largest size over the smallest; infinite if one is 0, 1 if all are or there is none."""
    largest, smallest = max(sizes, default=0), min(sizes, default=0)
    if not largest:
        return 1.0
    return largest / smallest if smallest else math.inf
