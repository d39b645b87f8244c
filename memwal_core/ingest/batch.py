"""What a batch is called, and what makes two attempts the same batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from memwal_core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one stream.

    Attributes:
        stream: Whose batch it is: a source, a pipeline, a streaming query. Any text.
        batch: Its id within the stream. Any text.
        number: For streams whose batch n begins only when n-1 is done: n, from 0. Records of old
            batches of such a stream are removed; every number up to the newest removed counts as done.
    """

    stream: str
    batch: str
    number: int | None = None

    def __post_init__(self) -> None:
        """Refuse what identifies nothing.

        Raises:
            InvalidRequestError: A name is empty, or the number is negative.
        """
        if not self.stream or not self.batch or (self.number is not None and self.number < 0):
            raise InvalidRequestError(
                "a batch needs the name of its stream and an id",
                remedy="give both; the same id must mean the same rows",
                stream=self.stream,
                batch=self.batch,
            )

    @classmethod
    def numbered(cls, stream: str, number: int) -> Self:
        """Return batch ``number`` of a stream that writes one batch after another."""
        return cls(stream, str(number), number)

    def __str__(self) -> str:
        """Return the batch for people."""
        return f"{self.stream}/{self.batch}"


@dataclass(frozen=True, slots=True)
class RegionRows:
    """How many rows a batch has for one region.

    Attributes:
        rows: Rows, deletes included.
        keys: Digest of the rows' keys that does not depend on their order; empty if not computed.
    """

    rows: int
    keys: str = ""
