"""Changes that know nothing of a format."""

from __future__ import annotations

import struct
from collections.abc import Callable

from memwal_core.rng import Rng
from testkit.fuzz.changes.values import NUMBERS

_MOST_RANDOM = 4_096
_WIDTHS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


def change_bytes(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change a file's bytes; those left, and what was done. ``other`` is another file of the same kind."""
    half = rng.randrange(len(data) + 1)
    choices: dict[str, Callable[[], bytes]] = {
        "flipped bits": lambda: _flipped(data, rng),
        "numbers overwritten": lambda: _overwritten(data, rng),
        "truncated": lambda: data[:half],
        "beginning cut": lambda: data[half:],
        "random bytes": lambda: rng.randbytes(rng.randrange(1, _MOST_RANDOM)),
        "empty": lambda: b"",
        "zeros": lambda: bytes(len(data)),
        "doubled": lambda: data * 2,
        "appended": lambda: data + rng.randbytes(rng.randrange(1, 64)),
        "exchanged": lambda: other,
        "half of another": lambda: data[:half] + other[half:],
        "ones": lambda: b"\xff" * len(data),
    }
    what = rng.choice(("flipped bits", "numbers overwritten", *choices))
    return choices[what](), what


def _flipped(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwritten(data: bytes, rng: Rng) -> bytes:
    """Write numbers at places where a number of their width may lie."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        width = rng.choice((1, 2, 4, 4, 8, 8))
        if len(changed) >= width:
            at = rng.randrange(len(changed) - width + 1) // width * width
            struct.pack_into(_WIDTHS[width], changed, at, rng.choice(NUMBERS) % 256**width)
    return bytes(changed)
