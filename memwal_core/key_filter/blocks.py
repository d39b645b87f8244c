"""A split-block bloom filter: each key sets eight bits of one 256-bit block."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from memwal_core.key_filter.siphash import Words

Blocks = npt.NDArray[np.uint32]

WORDS = 8
BLOCK_BYTES = 32
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_HIGH = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_BIT_SHIFT = np.uint32(27)


def block_count(keys: int, false_positive_rate: float) -> int:
    """Return how many blocks keep the rate of false positives below the one given."""
    bits = -WORDS * keys / math.log1p(-(false_positive_rate ** (1 / WORDS)))
    # Keys spread unevenly over blocks, which costs more the lower the rate.
    return max(1, math.ceil(bits * 1.15 / (BLOCK_BYTES * 8)))


def filled_blocks(hashes: Words, count: int) -> Blocks:
    """Return ``count`` blocks with the bits of all hashes set."""
    blocks = np.zeros((count, WORDS), np.uint32)
    index, masks = _places(hashes, count)
    for word in range(WORDS):
        np.bitwise_or.at(blocks[:, word], index, masks[:, word])
    return blocks


def hits(blocks: Blocks, hashes: Words) -> npt.NDArray[np.bool_]:
    """Return for each hash whether all of its bits are set."""
    index, masks = _places(hashes, len(blocks))
    found: npt.NDArray[np.bool_] = ((blocks[index] & masks) == masks).all(axis=1)
    return found


def _places(hashes: Words, count: int) -> tuple[npt.NDArray[np.int64], Blocks]:
    index = ((hashes >> _HIGH) * np.uint64(count)) >> _HIGH
    low = (hashes & _LOW).astype(np.uint32)
    bits = (low[:, None] * _SALTS) >> _BIT_SHIFT
    return index.astype(np.int64), np.left_shift(np.uint32(1), bits)
