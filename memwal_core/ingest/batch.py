"""The name of a batch, which decides whether two attempts write the same batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.key_filter import hashes_of


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one stream.

    Attributes:
        stream: The source, pipeline or streaming query that the batch belongs to. Any text.
        batch: Its id within the stream. Any text.
        number: For streams whose batch n begins only when n-1 is done: n, from 0. Records of old batches of such a
            stream are removed; every number up to the newest removed one counts as done.

    Raises:
        InvalidRequestError: A name is empty or no text, or the number is negative or none. Correct the id.
    """

    stream: str
    batch: str
    number: int | None = None

    def __post_init__(self) -> None:
        is_number = type(self.number) is int and self.number >= 0
        if not (_is_name(self.stream) and _is_name(self.batch) and (self.number is None or is_number)):
            raise InvalidRequestError(
                "a batch has no stream name or no id, one of them is no text, or its number is not one from 0",
                remedy="pass a stream and an id that always means the same rows as text, or number the batches of a "
                "stream with BatchId.numbered",
                stream=self.stream,
                batch=self.batch,
                number=self.number,
            )

    @classmethod
    def numbered(cls, stream: str, number: int) -> Self:
        """Return batch ``number``, from 0, of a stream that writes one batch after another."""
        return cls(stream, str(number), number)

    def __str__(self) -> str:
        return f"{self.stream}/{self.batch}"


def _is_name(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(text.encode())
    except UnicodeEncodeError:  # Half of a pair of surrogates.
        return False


@dataclass(frozen=True, slots=True)
class RegionRows:
    """The rows of a batch for one region.

    Attributes:
        rows: Their number, deletes included.
        keys: Digest of their keys that does not depend on the order; empty if not computed.
    """

    rows: int
    keys: str = ""


def combined_hash(rows: pa.Table, key: Sequence[str]) -> int:
    """Return the sum of the hashes of some rows' keys, as 64 bits; those of two pieces add up.

    No exclusive or: there a key that comes twice leaves no trace.
    """
    return int(hashes_of(rows, key).sum(dtype=np.uint64))


def keys_digest(combined: int) -> str:
    """Return the digest of keys from the sum of their hashes, which may be more than 64 bits, or of signed numbers."""
    return f"{combined & (2**64 - 1):016x}"
