"""Row changes by fragment, prepared anywhere and committed together by one process.

A change of rows is new fragments plus new deletion vectors of old fragments. Preparing them writes
files that no version names, so any number of processes may do it, and repeat it; nothing becomes
visible before ``BaseTable.strict_commit`` takes the operation made of them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.read_sizes import KEY_ROWS
from memwal_core.base_table.translate import translated
from memwal_core.format.deletion_vector import FILE_TYPE, SUFFIX, encode_deletion_vector
from memwal_core.format.lance_field import all_ids
from memwal_core.native.casting import compact_batch, no_rows
from memwal_core.storage import ObjectStore

_MAX_FILE_ROWS = 1 << 20
_FAST = 1


@dataclass(frozen=True, slots=True)
class BaseFragment:
    """A fragment of a table version.

    Attributes:
        document: pylance's description of it, as JSON. Equal documents mean equal rows, so what was
            found out about a fragment holds in every version that lists the same document.
        physical_rows: Rows in its files, deleted ones included.
    """

    fragment_id: int
    document: str
    physical_rows: int
    live_rows: int


@dataclass(frozen=True, slots=True)
class FragmentChange:
    """What superseding some keys does to a fragment.

    Attributes:
        superseded: Rows that go; 0 leaves the fragment as it is.
        document: Its new description; None if it is unchanged or removed as a whole.
        deletion_path: The new deletion vector, relative to the table.
        matched: Which keys were found, see ``count_repeated``.
    """

    fragment_id: int
    superseded: int
    document: str | None = None
    deletion_path: str | None = None
    matched: bytes = field(default=b"", repr=False)

    @property
    def is_removal(self) -> bool:
        """Whether no row of the fragment is left."""
        return self.superseded > 0 and self.document is None


def describe_fragments(dataset: lance.LanceDataset) -> tuple[BaseFragment, ...]:
    """Return the fragments of an opened version, from its metadata."""
    return tuple(_described(fragment.metadata) for fragment in dataset.get_fragments())


def _described(metadata: FragmentMetadata) -> BaseFragment:
    deleted = metadata.deletion_file.num_deleted_rows if metadata.deletion_file is not None else 0
    document = json.dumps(metadata.to_json(), sort_keys=True)
    return BaseFragment(metadata.id, document, metadata.physical_rows, metadata.physical_rows - deleted)


def data_paths(document: str) -> tuple[str, ...]:
    """Return the data files that a fragment's description names, relative to the table."""
    return tuple(f"data/{each['path']}" for each in json.loads(document)["files"] if each.get("base_id") is None)


def rows_in(document: str) -> int:
    """Return the physical rows of a described fragment."""
    return int(json.loads(document)["physical_rows"])


def write_rows(dataset: lance.LanceDataset, rows: pa.RecordBatchReader) -> tuple[str, ...]:
    """Write rows as new fragments that no version names yet, batch by batch; return their descriptions.

    They get the schema, field ids and file format of ``dataset``. Files may be left after an error.
    """
    with translated("write fragments", dataset.uri, read_version=dataset.version):
        made = write_fragments(
            pa.RecordBatchReader.from_batches(rows.schema, map(compact_batch, rows)),
            dataset,
            mode="append",
            max_rows_per_file=_MAX_FILE_ROWS,
            data_storage_version=dataset.data_storage_version,
        )
    return tuple(json.dumps(each.to_json(), sort_keys=True) for each in made)


def count_repeated(changes: Iterable[FragmentChange]) -> int:
    """Return how many superseded rows have the key of another one; the changes are of the same keys.

    Memory: eight bytes a row.
    """
    places = [_unpacked(change.matched) for change in changes if change.superseded]
    if not places:
        return 0
    everything = np.concatenate(places)
    everything.sort(kind="stable")  # Runs that are sorted already; `numpy.unique` would hash each of them.
    return int(np.count_nonzero(everything[1:] == everything[:-1]))


def packed(places: npt.NDArray[np.int64]) -> bytes:
    """Return numbers of keys in few bytes, as ``FragmentChange.matched`` has them: sorted, as distances."""
    return zlib.compress(np.diff(np.sort(places), prepend=0).tobytes(), _FAST)


def _unpacked(data: bytes) -> npt.NDArray[np.int64]:
    places: npt.NDArray[np.int64] = np.cumsum(np.frombuffer(zlib.decompress(data), np.int64))
    return places


@dataclass(frozen=True, slots=True)
class DeletionTarget:
    """Where the deletion vectors of one attempt go.

    Attributes:
        attempt: Names the attempt and its keys; never used for other keys.
    """

    store: ObjectStore
    attempt: str

    def remove(
        self, version: int, fragment: BaseFragment, *, live: npt.NDArray[np.bool_], gone: npt.NDArray[np.bool_]
    ) -> FragmentChange:
        """Write the deletion vector that takes some of a fragment's live rows away; none where that takes them all.

        The flags are of its physical rows, as of ``version``.
        """
        superseded = int(np.count_nonzero(gone))
        if superseded == fragment.live_rows:
            return FragmentChange(fragment.fragment_id, superseded)
        deleted = ~live | gone
        unique = hashlib.blake2b(f"{self.attempt}\n{fragment.document}".encode(), digest_size=8).digest()
        number = int.from_bytes(unique, "big") >> 1  # Lance reads it as a signed number in places
        path = f"_deletions/{fragment.fragment_id}-{version}-{number}.{SUFFIX}"
        self.store.put_if_absent(path, encode_deletion_vector(deleted))
        values = json.loads(fragment.document)
        values["deletion_file"] = {
            "read_version": version,
            "id": number,
            "file_type": FILE_TYPE,
            "num_deleted_rows": int(np.count_nonzero(deleted)),
            "base_id": None,
        }
        return FragmentChange(fragment.fragment_id, superseded, json.dumps(values, sort_keys=True), path)


def rows_of_keys(
    dataset: lance.LanceDataset, search: KeySearch, key: Sequence[str], columns: Sequence[str]
) -> pa.Table:
    """Return key and further columns of the rows that have one of some keys; scans the whole version."""
    wanted = [*key, *columns]
    parts: list[pa.Table] = []
    with translated("read rows by key", dataset.uri, version=dataset.version):
        for batch in dataset.scanner(columns=wanted, batch_size=KEY_ROWS).to_batches():
            rows = pa.Table.from_batches([batch])
            parts.append(rows.filter(pa.array(search.found(rows))))
    return pa.concat_tables(parts) if parts else no_rows(pa.schema([dataset.schema.field(name) for name in wanted]))


def update_operation(dataset: lance.LanceDataset, changes: Iterable[FragmentChange], new: Iterable[str]) -> Any:  # noqa: ANN401
    """Return the operation that makes fragment changes and new fragments part of the version after ``dataset``."""
    changed = [each for each in changes if each.superseded]
    return lance.LanceOperation.Update(
        removed_fragment_ids=[each.fragment_id for each in changed if each.is_removal],
        updated_fragments=[FragmentMetadata.from_json(each.document) for each in changed if each.document is not None],
        new_fragments=[FragmentMetadata.from_json(each) for each in new],
        fields_modified=[],
        # Every column of a rewritten row may differ, so no index covers the new fragments.
        fields_for_preserving_frag_bitmap=sorted(all_ids(dataset.lance_schema.fields())),
        update_mode="rewrite_rows",
    )


def named_files(dataset: lance.LanceDataset) -> set[str]:
    """Return the data files and deletion vectors that a version names, relative to the table.

    Two attempts at a change never share a file, so one file tells whether a version contains it.
    """
    named: set[str] = set()
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        named.update(f"data/{each.path}" for each in metadata.files)
        if metadata.deletion_file is not None:
            named.add(metadata.deletion_file.path(metadata.id))
    return named


def balanced(fragments: Sequence[BaseFragment], groups: int) -> Iterator[tuple[BaseFragment, ...]]:
    """Yield the fragments in at most ``groups`` groups of about as many rows each."""
    loads: list[tuple[int, list[BaseFragment]]] = [(0, []) for _ in range(groups)]
    for fragment in sorted(fragments, key=lambda each: each.physical_rows, reverse=True):
        lightest = min(range(groups), key=lambda at: loads[at][0])
        rows, members = loads[lightest]
        members.append(fragment)
        loads[lightest] = (rows + fragment.physical_rows, members)
    yield from (tuple(members) for _, members in loads if members)
