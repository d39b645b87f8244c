"""Keys of a unit as a file, for other processes: Spark executors, and garbage collection.

Files rather than a broadcast: a broadcast would hold the keys of the whole commit in the driver and in every
executor, whereas files are read a bounded part at a time. A file also names the fragments that its writer made,
so that the files of an attempt that the platform repeated or gave up can be found and removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from memwal_core.base_table.commit.row_changes import data_paths
from memwal_core.errors import CorruptionError, InternalError, ObjectNotFoundError
from memwal_core.format.paths import staged_keys_path
from memwal_core.ids import IdSource
from memwal_core.jobs.merge.work.key_spans import key_bounds
from memwal_core.jobs.merge.work.units import KeyPart
from memwal_core.storage import ObjectStore

_FILES = b"memwal_files"
_SUFFIX = ".arrow"


class KeyStager:
    """Stages the keys of one write unit, under a name unlike that of any other attempt."""

    def __init__(self, store: ObjectStore, directory: str, ids: IdSource) -> None:
        self._store = store
        self._path = staged_keys_path(directory, ids.commit_id().hex())

    def __call__(self, keys: pa.Table, documents: Sequence[str]) -> KeyPart:
        """Write the keys and the names of the data files."""
        files = [path for document in documents for path in data_paths(document)]
        staged = keys.replace_schema_metadata({_FILES: json.dumps(files).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, staged.schema) as writer:
            writer.write_table(staged)
        self._store.put_if_absent(self._path, sink.getvalue().to_pybytes())
        return KeyPart(self._path, None, keys.num_rows, keys.nbytes, key_bounds(keys))


class StagedKeys:
    """Loads staged keys."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __call__(self, part: KeyPart) -> pa.Table:
        """Return the keys of a part; an ``ObjectNotFoundError`` means that the file was removed: plan again."""
        if part.path is None:
            raise InternalError("keys that were not staged reached another process", remedy="report this")
        with _intact(part.path):
            return pa.ipc.open_stream(self._store.get(part.path)).read_all().replace_schema_metadata(None)


@contextmanager
def _intact(path: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CorruptionError(
            "a file of staged keys is damaged",
            remedy="merge again, which stages its keys anew; delete the file when no merge runs",
            path=path,
            cause=str(error),
        ) from error


def files_of_other_attempts(store: ObjectStore, directory: str, accepted: Collection[str]) -> Iterator[str]:
    """Yield the data files of attempts whose outcome was not used; ``accepted`` are the staged files of the others."""
    for info in list(store.list_objects(directory)):
        if info.path in accepted or not info.path.endswith(_SUFFIX):
            continue
        try:
            with _intact(info.path):
                metadata = pa.ipc.open_stream(store.get(info.path)).schema.metadata
        except ObjectNotFoundError:
            continue
        yield from json.loads(metadata[_FILES])
