"""The durable records of batches: begun, shares, done."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memwal_core.clock import Clock
from memwal_core.errors import CorruptionError, InvalidRequestError, MemwalError, ObjectExistsError
from memwal_core.format.paths import batch_claim_path, batch_directory, batch_share_path, batch_stream_directory
from memwal_core.ids import RegionId
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.documents import load, save, to_bytes
from memwal_core.register import FIRST_VERSION, Entry, VersionedRegister
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore

KEPT_NUMBERED = 100
"""Records of finished batches that a numbered stream keeps; older ones are below its floor."""

_CONCURRENCY = 16
_DONE = "/done.json"
_FLOOR_ATTEMPTS = 8
_FLOOR_SUFFIX = ".json"
_KEPT_FLOORS = 4
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch that is written completely.

    Attributes:
        rows: Rows written, deletes included; None if only the stream's floor remains.
        rows_begun: Rows that the batch began with; a writer may have left out older ones of a key. None as above.
        finished_at: ISO 8601, UTC; empty if only the stream's floor remains.
    """

    batch: BatchId
    rows: int | None
    regions: int
    finished_at: str
    source: str
    rows_begun: int | None = None


@dataclass(frozen=True, slots=True)
class ShareDone:
    """A region's rows of a batch, all durable.

    Attributes:
        rows: Rows written, deletes included.
    """

    value: str
    region_id: str
    rows: int
    deletes: int
    epoch: int
    attempt: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ShareDone:
        """Read a record."""
        return cls(**{name: document[name] for name in cls.__slots__})

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {name: getattr(self, name) for name in self.__slots__}


class BatchRecords:
    """The records of a table's batches. Caches nothing; every call reads the store."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def done(self, batch: BatchId) -> BatchDone | None:
        """Return the record of a finished batch; None if it is not finished."""
        document = load(self._store, _done_path(batch))
        if document is not None:
            with _complete(_done_path(batch)):
                return BatchDone(
                    batch=batch,
                    rows=document["rows"],
                    regions=len(document["regions"]),
                    finished_at=document["finished_at"],
                    source=document["source"],
                    rows_begun=document["rows_begun"],
                )
        if batch.number is not None and batch.number <= self._floor(batch.stream):
            return BatchDone(batch, None, 0, "", "")
        return None

    def is_followed(self, batch: BatchId) -> bool:
        """Return whether a later batch of a numbered stream has begun."""
        if batch.number is None:
            return False
        following = BatchId.numbered(batch.stream, batch.number + 1)
        return self._store.head(_begun_path(following)) is not None or self.done(following) is not None

    def share(self, batch: BatchId, value: str) -> ShareDone | None:
        """Return the record of a share; None if it is not written, or removed because the batch is done."""
        path = batch_share_path(batch.stream, batch.batch, value)
        document = load(self._store, path)
        with _complete(path):
            return ShareDone.of(document) if document is not None else None

    def settled(self, batch: BatchId, value: str) -> ShareDone | BatchDone | None:
        """Return the record that forbids writing a share again; None if there is none.

        Read in this order: share, batch, floor. A share is removed only after its batch is recorded as done, and that
        record only after the floor covers it, so one of them is always seen.
        """
        return self.share(batch, value) or self.done(batch)

    def shares(self, batch: BatchId) -> dict[str, ShareDone]:
        """Return the written shares by region value."""
        paths = [info.path for info in self._store.list_objects(f"{_directory(batch)}/shares")]
        found = map_concurrently(lambda path: load(self._store, path), paths, _CONCURRENCY)
        with _complete(f"{_directory(batch)}/shares"):
            return {document["value"]: ShareDone.of(document) for document in found if document is not None}

    def count_shares(self, batch: BatchId) -> int:
        """Return how many shares are written."""
        return sum(1 for _ in self._store.list_objects(f"{_directory(batch)}/shares"))

    def begin(self, batch: BatchId, regions: Mapping[str, RegionRows], source: str = "") -> None:
        """Record what a batch is going to write, or check it against the record of an earlier attempt.

        Raises:
            InvalidRequestError: An earlier attempt began the batch with other rows; this one has written nothing.
            CorruptionError: The record of the earlier attempt cannot be read.
        """
        wanted = {value: [rows.rows, rows.keys] for value, rows in regions.items()}
        document = {**_named(batch), "source": source, "begun_at": self._now(), "regions": wanted}
        if save(self._store, _begun_path(batch), document):
            return
        begun = load(self._store, _begun_path(batch))
        with _complete(_begun_path(batch)):
            if begun is None or begun["regions"] == wanted:
                return
            begun_at, source_then = begun["begun_at"], begun["source"]
            rows_then = sum(rows for rows, _ in begun["regions"].values())
        raise InvalidRequestError(
            "an earlier attempt began this batch with other rows, and may have written some of them",
            remedy="pass the rows of the first attempt again, divided by its region spec if the table has another one "
            "since, or use a new batch id, whose rows then win",
            batch=str(batch),
            begun_at=begun_at,
            rows_then=rows_then,
            rows_now=sum(rows.rows for rows in regions.values()),
            source_then=source_then,
            source_now=source,
        )

    def record_share(self, batch: BatchId, share: ShareDone) -> ShareDone:
        """Record that all rows of a share are durable; return the first record, which may be another attempt's."""
        document = {**share.to_dict(), **_named(batch), "finished_at": self._now()}
        if save(self._store, batch_share_path(batch.stream, batch.batch, share.value), document):
            return share
        return self.share(batch, share.value) or share

    def finish(self, batch: BatchId, source: str = "") -> BatchDone:
        """Record that every share of a batch is written; from then on the batch is a no-op.

        Raises:
            InvalidRequestError: Some shares are not written yet.
        """
        found = self.done(batch)
        if found is None:
            begun = load(self._store, _begun_path(batch))
            shares = self.shares(batch)
            if begun is None and (found := self.done(batch)) is None:
                raise InvalidRequestError(
                    "the batch was never begun, so nothing says what it consists of",
                    remedy="ingest the batch, and check its name",
                    batch=str(batch),
                )
            with _complete(_begun_path(batch)):
                wanted = begun["regions"] if begun is not None else {}
                missing, rows_begun = wanted.keys() - shares.keys(), sum(rows for rows, _ in wanted.values())
            if missing and (found := self.done(batch)) is None:
                raise InvalidRequestError(
                    "the batch is not complete: some of its shares are not written",
                    remedy="ingest the batch again, which writes the missing shares",
                    batch=str(batch),
                    missing=sorted(missing),
                )
            if found is None:
                document = {
                    **_named(batch),
                    "source": source,
                    "finished_at": self._now(),
                    "rows": sum(share.rows for share in shares.values()),
                    "rows_begun": rows_begun,
                    "regions": {share.region_id: share.rows for share in shares.values()},
                }
                save(self._store, _done_path(batch), document)
                found = self.done(batch)
        assert found is not None  # noqa: S101 - just written
        self._tidy(batch)
        return found

    def note_claim(self, batch: BatchId, region_id: RegionId, epoch: int) -> None:
        """Note that an attempt of a batch is about to claim a region under an epoch."""
        self._store.put(batch_claim_path(batch.stream, region_id), to_bytes({**_named(batch), "epoch": epoch}))

    def claim(self, batch: BatchId, region_id: RegionId) -> tuple[BatchId, int] | None:
        """Return the batch of this stream that claimed a region last, or was about to, and the epoch; None if none did.

        A note that cannot be read tells nothing: it is replaced in place, and a power cut may tear it. Then the region
        counts as somebody else's until its writer is silent.
        """
        try:
            note = load(self._store, batch_claim_path(batch.stream, region_id))
            return None if note is None else (BatchId(batch.stream, note["batch"], note["number"]), int(note["epoch"]))
        except (CorruptionError, KeyError, TypeError, ValueError, InvalidRequestError):
            return None

    def claimant(self, batch: BatchId, region_id: RegionId, epoch: int) -> BatchId | None:
        """Return the batch of this stream that claimed a region under an epoch; None if no note says so."""
        claim = self.claim(batch, region_id)
        return claim[0] if claim is not None and claim[1] == epoch else None

    def _tidy(self, batch: BatchId) -> None:
        """Remove what a finished batch no longer needs; a failure leaves harmless objects behind."""
        try:
            shares = [info.path for info in self._store.list_objects(f"{_directory(batch)}/shares")]
            self._delete([*shares, _begun_path(batch)])
            if batch.number is not None and batch.number >= KEPT_NUMBERED:
                self._raise_floor(batch.stream, batch.number - KEPT_NUMBERED)
        except MemwalError as error:
            _log.warning("could not remove the records of a finished batch [batch=%s]: %s", batch, error)

    def _floor(self, stream: str) -> int:
        newest = self._floors(stream).latest()
        return -1 if newest is None else _floor_of(newest)

    def _floors(self, stream: str) -> VersionedRegister:
        return VersionedRegister(self._store, _floor_directory(stream), _FLOOR_SUFFIX)

    def _raise_floor(self, stream: str, floor: int) -> None:
        """Raise the floor by compare-and-swap: were it lowered, batches whose records are gone would be written again.

        Several processes finish batches of one stream at once; one that loses looks again.
        """
        floors, old = self._floors(stream), -1
        for _ in range(_FLOOR_ATTEMPTS):
            newest = floors.latest()
            old = -1 if newest is None else _floor_of(newest)
            if floor <= old:
                return
            number = FIRST_VERSION if newest is None else newest.version + 1
            try:
                floors.create(number, to_bytes({"stream": stream, "floor": floor}))
                break
            except ObjectExistsError:
                continue
        else:
            return  # A later batch raises it.
        if number > _KEPT_FLOORS:
            floors.delete_before(number - _KEPT_FLOORS)
        self._delete(self._finished(stream, range(max(0, old + 1), floor + 1)))

    def _finished(self, stream: str, numbers: range) -> list[str]:
        """Return where numbered batches are recorded as done: all places of a few, of many those that exist."""
        if numbers.stop - numbers.start <= _CONCURRENCY:  # Python has no length of a longer one than 2^63.
            return [_done_path(BatchId.numbered(stream, number)) for number in numbers]
        paths = {info.path for info in self._store.list_objects(batch_stream_directory(stream))}
        records = [path for path in paths if path.endswith(_DONE)]
        documents = map_concurrently(lambda path: load(self._store, path), records, _CONCURRENCY)
        recorded = {document.get("number") for document in documents if document is not None}
        return [
            path
            for number in recorded
            if type(number) is int
            and number in numbers
            and (path := _done_path(BatchId.numbered(stream, number))) in paths
        ]

    def _delete(self, paths: Sequence[str]) -> None:
        map_concurrently(self._store.delete, paths, _CONCURRENCY)

    def _now(self) -> str:
        return self._clock.now().isoformat()


def _named(batch: BatchId) -> dict[str, object]:
    return {"stream": batch.stream, "batch": batch.batch, "number": batch.number}


def _directory(batch: BatchId) -> str:
    return batch_directory(batch.stream, batch.batch)


def _begun_path(batch: BatchId) -> str:
    return f"{_directory(batch)}/begun.json"


def _done_path(batch: BatchId) -> str:
    return _directory(batch) + _DONE


def _floor_directory(stream: str) -> str:
    return f"{batch_stream_directory(stream)}/floor"


def _floor_of(entry: Entry) -> int:
    with _complete(f"floor, version {entry.version}"):
        return int(json.loads(entry.data)["floor"])


@contextmanager
def _complete(path: str) -> Iterator[None]:
    """Tell which record lacks a field."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(
            "the record of a batch lacks a field",
            remedy="restore the object from a backup, or delete it if the batch was certainly not written",
            path=path,
            problem=repr(error),
        ) from error
