"""Bounds switched off, and harm done on purpose: what the fuzzer must find, or its silence proves nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from memwal_core.coordination.lease import document as lease_document
from memwal_core.observe import lifecycle
from testkit.fuzz import decoders


def _count_up_to_generations() -> None:
    def holes(recorded: Iterable[int], first: int, end: int) -> list[range]:
        known = set(recorded)
        return [range(number, number + 1) for number in range(first, end) if number not in known]

    setattr(lifecycle, "holes", holes)  # noqa: B010 - not exported


def _take_any_moment() -> None:
    def taken(value: object) -> datetime:
        return datetime.fromisoformat(str(value)).astimezone(UTC)

    setattr(lease_document, "as_moment", taken)  # noqa: B010 - not exported


def _decode_by(decode: Callable[[], object]) -> None:
    decoders.DECODERS = dict.fromkeys(decoders.DECODERS, lambda _: decode())


def _hang() -> None:
    while True:
        pass


def _take_memory() -> None:
    taken = bytearray(2 << 30)
    taken[:: 1 << 12] = b"x" * len(taken[:: 1 << 12])
    while True:
        pass


WITHOUT: Mapping[str, Callable[[], None]] = MappingProxyType(
    {
        "spans of generations": _count_up_to_generations,
        "bounds of moments": _take_any_moment,
        "survival": lambda: _decode_by(os.abort),
        "an end": lambda: _decode_by(_hang),
        "modesty": lambda: _decode_by(_take_memory),
    }
)
"""What is missing -> switches it off in this process."""
