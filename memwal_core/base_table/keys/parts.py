"""Rows divided into parts by a number of each row, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def rows_by_part(
    numbers: npt.NDArray[np.uint32], parts: int
) -> tuple[npt.NDArray[np.int64], Sequence[tuple[int, int, int]]]:
    """Group rows by their number modulo ``parts``, which is at most 65,536.

    Returns:
        The rows in the order of their parts; and of each part that has rows, its number, and where in that order its
        rows begin and end.
    """
    own = part_of(numbers, parts)
    ends = np.cumsum(np.bincount(own, minlength=parts)).tolist()
    slices = zip(range(parts), [0, *ends], ends, strict=False)
    return np.argsort(own, kind="stable"), [each for each in slices if each[1] < each[2]]


def part_of(numbers: npt.NDArray[np.uint32], parts: int) -> npt.NDArray[np.uint16]:
    """Return the part of each row."""
    # Numbers of 16 bits are sorted several times as fast, by their digits.
    return (numbers % np.uint32(parts)).astype(np.uint16)
