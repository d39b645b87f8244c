"""Identifiers and the source of new ones."""

from __future__ import annotations

import uuid
from typing import NewType

from memwal_core.errors import InvalidRequestError
from memwal_core.rng import Rng, system_rng

RegionId = NewType("RegionId", uuid.UUID)
"""Identity of a region: a UUID, version 4 when made here."""


def parse_region_id(text: str) -> RegionId:
    """Return the region id that a text gives in canonical form.

    Raises:
        InvalidRequestError: The text is not a UUID in canonical form.
    """
    try:
        value = uuid.UUID(text)
    except ValueError as error:
        raise InvalidRequestError(
            "the text is not a region id", remedy="give the UUID that `memwal status` shows", text=text
        ) from error
    if str(value) != text.lower():
        raise InvalidRequestError(
            "the region id is not in canonical form", remedy="write it as expected", text=text, expected=str(value)
        )
    return RegionId(value)


class IdSource:
    """Makes new identifiers from one random source, by default the operating system's."""

    def __init__(self, rng: Rng | None = None) -> None:
        self._rng = rng if rng is not None else system_rng()

    def region_id(self) -> RegionId:
        """Return a fresh UUID version 4."""
        return RegionId(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def directory_prefix(self) -> str:
        """Return 8 hexadecimal digits, the prefix of a flushed MemTable's directory name."""
        return f"{self._rng.getrandbits(32):08x}"

    def commit_id(self) -> bytes:
        """Return 16 bytes that distinguish one commit attempt from all others."""
        return self._rng.getrandbits(128).to_bytes(16, "big")
