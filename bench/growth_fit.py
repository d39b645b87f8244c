"""How a cost grows with a size: the exponent of a power law, fitted and of the last step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Growth:
    """Exponents of ``cost ~ size^k``.

    Attributes:
        fitted: Least squares over all sizes on logarithmic axes. A fixed cost at small sizes lowers it.
        last_step: Between the two largest sizes alone, where a fixed cost matters least.
    """

    fitted: float
    last_step: float

    def to_dict(self) -> dict[str, float]:
        """Return the exponents as JSON-able values."""
        return {"fitted": self.fitted, "last_step": self.last_step}


def fit_growth(sizes: Sequence[float], costs: Sequence[float]) -> Growth | None:
    """Fit exponents.

    Args:
        sizes: Positive, ascending.
        costs: Positive, of whole operations, one per size.

    Returns:
        The exponents, or None if there are fewer than two points.
    """
    if len(sizes) < 2:
        return None
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(costs, dtype=float))
    slope = float(np.polyfit(x, y, 1)[0])
    return Growth(slope, float((y[-1] - y[-2]) / (x[-1] - x[-2])))
