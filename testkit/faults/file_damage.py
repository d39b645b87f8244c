"""What may happen to a stored file: each kind of damage turns its bytes into others, or removes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

Damaged = Callable[[bytes, bytes], bytes | None]
"""From the bytes of a file, and those of its counterpart in another region, to what is left; None removes the file."""

_FLIPPED_BYTES = 20


def _flipped(data: bytes, start: int) -> bytes:
    part = data[start : start + _FLIPPED_BYTES]
    return data[:start] + bytes(255 - byte for byte in part) + data[start + len(part) :]


DAMAGES: Mapping[str, Damaged] = MappingProxyType(
    {
        "zeroed": lambda data, _: bytes(len(data)),
        "truncated": lambda data, _: data[: len(data) // 2],
        "empty": lambda _, __: b"",
        "deleted": lambda _, __: None,
        "swapped": lambda _, other: other,
        "flipped": lambda data, _: _flipped(data, len(data) // 2),
        "flipped_end": lambda data, _: _flipped(data, max(0, len(data) - _FLIPPED_BYTES)),
        "appended": lambda data, _: data + b"garbage!" * 5,
    }
)


def damage_file(path: Path, kind: str, counterpart: Path | None = None) -> None:
    """Damage a file in place.

    Args:
        path: The file.
        kind: One of ``DAMAGES``.
        counterpart: The same kind of file of another region, for ``swapped``; itself if None, which changes nothing.
    """
    left = DAMAGES[kind](path.read_bytes(), (counterpart or path).read_bytes())
    path.unlink()  # The file may be linked from elsewhere, and damage is to one name.
    if left is not None:
        path.write_bytes(left)
