"""Identifiers: what they are and how new ones are made."""

from __future__ import annotations

import uuid
from typing import NewType

from memwal_core.errors import InvalidRequestError
from memwal_core.rng import Rng, system_rng

RegionId = NewType("RegionId", uuid.UUID)
"""Identity of a region: a UUID, version 4 when made here."""


def parse_region_id(text: str) -> RegionId:
    """Read a region id from its text form.

    Raises:
        InvalidRequestError: The text is no UUID in canonical form.
    """
    try:
        value = uuid.UUID(text)
    except ValueError as error:
        raise InvalidRequestError(
            "this is not a region id", remedy="give the UUID that `memwal status` shows", text=text
        ) from error
    if str(value) != text.lower():
        raise InvalidRequestError(
            "this region id is not in canonical form", remedy="write it as shown", text=text, expected=str(value)
        )
    return RegionId(value)


class IdSource:
    """Makes new identifiers from one random source.

    Args:
        rng: Where the bits come from; the operating system's source by default.
    """

    def __init__(self, rng: Rng | None = None) -> None:
        """Keep the source."""
        self._rng = rng if rng is not None else system_rng()

    def region_id(self) -> RegionId:
        """Return a fresh UUID version 4."""
        return RegionId(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def directory_prefix(self) -> str:
        """Return the 8 hexadecimal characters in front of a generation's directory name."""
        return f"{self._rng.getrandbits(32):08x}"

    def commit_id(self) -> bytes:
        """Return 16 bytes that make one commit attempt recognisable among all others."""
        return self._rng.getrandbits(128).to_bytes(16, "big")
