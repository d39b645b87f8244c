"""The files outside of itself that a table is made of."""

from __future__ import annotations

import lance

from memwal_core.base_table.translate import translated
from memwal_core.storage import ObjectStore


def files_of_other_bases(store: ObjectStore, directory: str) -> frozenset[str]:
    """Return the names, relative to their base, of data files of the newest version that lie in another base.

    ``CorruptionError``: something in the table's directory is not a file.

    A zero-copy flushed MemTable consists of such files: the WAL entries of its region.
    """
    store.require_files([directory])
    uri = store.uri_of(directory)
    with translated("read the files of a table", uri):
        dataset = lance.dataset(uri, storage_options=dict(store.storage_options) or None)
        return frozenset(
            data_file.path
            for fragment in dataset.get_fragments()
            for data_file in fragment.metadata.files
            if data_file.base_id is not None
        )
