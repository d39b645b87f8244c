"""Appending to a WAL: put-if-absent at exactly the next position, whatever happens meanwhile.

A position that is taken is read before anything else is decided:

* a higher epoch: this writer is fenced;
* a lower epoch: a fenced predecessor wrote late. Its rows may have been acknowledged, so they are
  replayed and the next position is used;
* our own epoch, an attempt of ours whose reply was lost, or whose outcome the caller could not take note of: it landed
  after all. It is treated like a late entry; the next entry repeats its rows, which changes nothing for an upsert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from memwal_core.errors import (
    CommitUnknownError,
    CorruptionError,
    FencedError,
    InternalError,
    InvalidRequestError,
    MemwalError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.entry import (
    ATTEMPT_KEY,
    FENCE_KEY,
    GENERATION_KEY,
    PLACE_KEY,
    WRITER_EPOCH_KEY,
    WalCodec,
    WalEntry,
    place_of,
)


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of one append.

    Attributes:
        wal_id: Where the rows are.
        attempt: The mark in the entry.
        late: Entries found at the positions before ``wal_id``; their rows are older than the appended ones.
    """

    wal_id: int
    size_bytes: int
    attempt: str
    late: tuple[WalEntry, ...] = field(default=())


_NO_ROWS = pa.table({"fence": pa.array([], pa.bool_())})
"""Lance reads no file without columns."""


class WalAppender:
    """The one writer of a region's WAL under one epoch. Not thread-safe.

    The next append takes the position after ``last_wal_id``, the last entry that exists; ``storage_version`` is
    the Lance format version of entries that are Lance files.
    """

    def __init__(  # noqa: PLR0913  (built once, by the region writer)
        self,
        store: ObjectStore,
        region_id: RegionId,
        codec: WalCodec,
        *,
        writer_epoch: int,
        last_wal_id: int,
        storage_version: str,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._region_id = region_id
        self._codec = codec
        self._epoch = writer_epoch
        self._last_wal_id = last_wal_id
        self._storage_version = storage_version
        self._ids = ids
        self._in_doubt: dict[str, int] = {}

    @property
    def last_wal_id(self) -> int:
        """The last entry known to exist; 0 if there is none."""
        return self._last_wal_id

    def append(self, rows: pa.Table, generation: int | None = None, *, noted_wal_id: int | None = None) -> Appended:
        """Write one entry durably; ``rows`` is not empty, ``generation`` is the MemTable that took them.

        Late entries in the result must be replayed before these rows.

        Args:
            rows: What to write.
            generation: The MemTable that took them; None if none did.
            noted_wal_id: The last entry that the caller took note of, by which later ones are found again; all if None.

        Raises:
            FencedError: A newer writer owns the region. Stop.
            CommitUnknownError: The store did not answer, or refused; the entry may exist or appear later. Append
                the same rows again: if the first attempt landed, it comes back as ``late``.
        """
        if noted_wal_id is not None:
            self._last_wal_id = noted_wal_id
        return self._append(rows, {} if generation is None else {GENERATION_KEY: str(generation)})

    def noted(self, wal_id: int) -> None:
        """Forget attempts up to an entry: the caller has taken note of what they wrote, which never goes again."""
        self._in_doubt = {attempt: place for attempt, place in self._in_doubt.items() if place > wal_id}

    def append_fence(self) -> Appended:
        """Take the next position without rows, so that an older writer finds it taken at its next write.

        Raises:
            FencedError: A newer writer owns the region. Stop.
            CommitUnknownError: The store did not answer. Claim the region again.
        """
        return self._append(_NO_ROWS, {FENCE_KEY: "true"})

    def _append(self, rows: pa.Table, metadata: Mapping[str, str]) -> Appended:
        late: list[WalEntry] = []
        while True:
            wal_id = self._last_wal_id + len(late) + 1
            attempt = self._ids.commit_id().hex()
            size = self._put(wal_id, rows, attempt, metadata)
            if size is not None:
                # Not earlier: an append that fails must find the late entries again.
                self._last_wal_id = wal_id
                return Appended(wal_id, size, attempt, tuple(late))
            late.append(self._occupied(wal_id))

    def _put(self, wal_id: int, rows: pa.Table, attempt: str, extra: Mapping[str, str]) -> int | None:
        """Put the entry; return its size, or None when other bytes have taken the position."""
        path = wal_entry_path(self._region_id, wal_id, self._codec.suffix)
        place = place_of(self._region_id, wal_id)
        metadata = {WRITER_EPOCH_KEY: str(self._epoch), ATTEMPT_KEY: attempt, PLACE_KEY: place, **extra}
        name = f"{attempt}{self._codec.suffix}"
        self._in_doubt[attempt] = wal_id  # Whatever ends the request, an interruption included: the entry may exist.
        size: int | None = None
        try:
            content = self._codec.encode(
                rows, metadata, self._storage_version, lambda: self._store.staging_directory(path) / name
            )
            size = self._put_content(path, content)
        except ObjectExistsError:
            pass
        except (UnavailableError, StoreRefusedError, InvalidRequestError) as error:
            raise self._unknown(error, wal_id, attempt=attempt) from error
        if size is None:
            del self._in_doubt[attempt]
        return size

    def _put_content(self, path: str, content: Sequence[memoryview] | Path) -> int:
        if not isinstance(content, Path):
            self._store.put_parts_if_absent(path, content)
            return sum(map(len, content))
        try:
            size = content.stat().st_size
            self._store.put_file_if_absent(path, content)
        finally:
            content.unlink(missing_ok=True)
        return size

    def _occupied(self, wal_id: int) -> WalEntry:
        """Read the entry at a taken position; ``FencedError`` unless it may be stepped over."""
        try:
            entry = self._codec.read(self._store, self._region_id, wal_id)
        except CorruptionError as error:
            if not isinstance(error.__cause__, ObjectNotFoundError):
                raise
            raise self._fenced(": an entry behind this writer's last one was collected", wal_id) from error
        except (UnavailableError, StoreRefusedError, InvalidRequestError) as error:
            raise self._unknown(error, wal_id) from error
        if entry.writer_epoch > self._epoch:
            raise self._fenced("", wal_id, found_epoch=entry.writer_epoch)
        if entry.writer_epoch == self._epoch and entry.attempt not in self._in_doubt:
            raise InternalError(
                "another process wrote a WAL entry under this writer's epoch",
                remedy="report this with the region's manifest; two writers must never share an epoch",
                region_id=str(self._region_id),
                wal_id=wal_id,
                epoch=self._epoch,
                attempt=entry.attempt,
            )
        return entry

    def _unknown(self, error: MemwalError, wal_id: int, **facts: str) -> CommitUnknownError:
        return CommitUnknownError(
            "a WAL entry could not be written; its rows may or may not be durable",
            remedy=f"{error.remedy}: put the same rows again, or call sync(); repeating an upsert is harmless",
            region_id=str(self._region_id),
            wal_id=wal_id,
            cause=error.what,
            reason=error.facts.get("reason"),
            **facts,
        )

    def _fenced(self, sign: str, wal_id: int, **facts: int) -> FencedError:
        return FencedError(
            f"another writer has taken over the region{sign}",
            remedy="stop this writer; open a new one if this process should own the region",
            region_id=str(self._region_id),
            wal_id=wal_id,
            own_epoch=self._epoch,
            **facts,
        )
