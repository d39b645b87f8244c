"""Read the keys of a table version in shares, and count them where all rows of a key come together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import lance
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.keys.counts import KeyCounts, count_keys
from memwal_core.base_table.keys.fingerprints import (
    FINGERPRINT_BYTES,
    Fingerprints,
    count_distinct,
    count_distinct_here,
    split_fingerprints,
)
from memwal_core.base_table.keys.tally import KeyPiece, counts_of, split_keys, sum_counts, tally
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.reading.read_sizes import KEY_ROWS
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.jobs.context import JobContext, Progress, unwatched
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing

_LEAST_PART_BYTES = 1 << 20
_MOST_PARTS = 1024
_TEXT_BYTES = 32
"""What a key of text or binary is taken to need, since metadata does not say it."""

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class KeyShare:
    """Some fragments whose keys are read.

    Attributes:
        origin: Whose keys they are.
    """

    version: int
    fragments: tuple[int, ...]
    schema: pa.Schema
    origin: str
    parts: int


def nullable_key_schema(schema: pa.Schema, key: Iterable[str]) -> pa.Schema:
    """Return the key columns of a schema. They may hold NULL, which damage can bring about."""
    return pa.schema([pa.field(name, schema.field(name).type) for name in key])


def work_of_keys(rows: int, schema: pa.Schema) -> Work:
    """Return how much there is to read of the keys of some rows, as far as metadata tells."""
    return Work(size_bytes=rows * sum(_width(kind) for kind in schema.types))


def parts_of_keys(work: Work, part_bytes: int, slots: int) -> int:
    """Return into how many parts keys are split, so that one needs little memory, and all slots have one."""
    for_memory = -(-work.size_bytes // part_bytes)
    for_slots = min(slots, work.size_bytes // _LEAST_PART_BYTES)
    return max(1, min(_MOST_PARTS, max(for_memory, for_slots)))


def share_keys(
    sharing: Sharing, dataset: lance.LanceDataset, schema: pa.Schema, origin: str, parts: int
) -> list[KeyShare]:
    """Divide the fragments of an opened version into shares."""
    fragments = list(dataset.fragment_ids())
    return [KeyShare(dataset.version, each, schema, origin, parts) for each in sharing.divide(fragments)]


def read_keys_of(context: JobContext, share: KeyShare) -> Iterator[tuple[int, KeyPiece]]:
    """Read the keys of a share in pieces; memory holds a few megabytes of them."""
    return split_keys(_tables_of(context, share), share.origin, share.parts)


def count_keys_in_shares(sharing: Sharing | None, dataset: lance.LanceDataset, schema: pa.Schema) -> KeyCounts:
    """Count the keys of an opened version where the run does its work, with the same result in both places.

    Fingerprints prove it if every key occurs once. Otherwise the keys themselves are counted: in this process by
    Lance's query engine; on executors, where rows with the same key come together in one part of the keys, which is
    held in memory by the slot that counts it.

    Raises:
        CorruptionError: Keys cannot be read, for example because one is NULL.
    """
    rows = dataset.count_rows()
    if _count_distinct(sharing, dataset, schema, rows) == rows:
        return KeyCounts(rows, rows, ())
    if sharing is None or not sharing.on_executors:
        with _readable(dataset):
            return count_keys(dataset, schema.names)
    parts = parts_of_keys(work_of_keys(rows, schema), sharing.settings.part_bytes, sharing.slots)
    shares = share_keys(sharing, dataset, schema, _ROWS, parts)
    return sum_counts(sharing.exchange("count keys", read_keys_of, shares, _count, parts), schema.names)


def _count_distinct(sharing: Sharing | None, dataset: lance.LanceDataset, schema: pa.Schema, rows: int) -> int | None:
    if sharing is None or not sharing.on_executors:
        progress = sharing.progress if sharing is not None else unwatched
        return count_distinct_here(lambda: _told(_tables(dataset, schema), rows, progress), rows)
    parts = parts_of_keys(Work(size_bytes=rows * FINGERPRINT_BYTES), sharing.settings.part_bytes, sharing.slots)
    shares = share_keys(sharing, dataset, schema, _ROWS, parts)
    found = sharing.exchange("prove that keys are distinct", _read_fingerprints, shares, count_distinct, parts)
    return None if None in found else sum(each for each in found if each is not None)


def _told(keys: Iterable[pa.Table], rows: int, progress: Progress) -> Iterator[pa.Table]:
    read = 0
    for table in keys:
        yield table
        read += table.num_rows
        progress("keys read", read, rows)


def _read_fingerprints(context: JobContext, share: KeyShare) -> Iterator[tuple[int, Fingerprints | None]]:
    return split_fingerprints(_tables_of(context, share), share.parts)


def _count(pieces: Iterable[KeyPiece]) -> KeyCounts:
    return counts_of(tally(pieces, (_ROWS,)), _ROWS)


def _tables_of(context: JobContext, share: KeyShare) -> Iterator[pa.Table]:
    return _tables(context.base.dataset(share.version), share.schema, frozenset(share.fragments))


def _tables(dataset: lance.LanceDataset, schema: pa.Schema, wanted: frozenset[int] | None = None) -> Iterator[pa.Table]:
    """Read the keys of some fragments, or of all."""
    with _readable(dataset), translated("read keys", dataset.uri, version=dataset.version):
        chosen = None
        if wanted is not None:
            chosen = fragments_of(dataset, sorted(wanted))
        scanner = dataset.scanner(columns=schema.names, fragments=chosen, batch_size=KEY_ROWS)
        for batch in scanner.to_batches():
            yield pa.Table.from_batches([batch]).cast(schema)


@contextmanager
def _readable(dataset: lance.LanceDataset) -> Iterator[None]:
    """Call keys that Lance refuses to read what they are: nothing was asked for that could be wrong."""
    try:
        yield
    except InvalidRequestError as error:
        raise CorruptionError(
            "the keys of the base table cannot be read",
            remedy="start no merge and no garbage collection; follow docs/runbooks/check-failed.md",
            table=dataset.uri,
            version=dataset.version,
            reason=error.facts.get("reason", error.what),
        ) from error


def _width(kind: pa.DataType) -> int:
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else _TEXT_BYTES
