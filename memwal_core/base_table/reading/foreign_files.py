"""The files outside of itself that a table is made of."""

from __future__ import annotations

from collections.abc import Mapping

import lance

from memwal_core.base_table.translate import translated


def files_of_other_bases(uri: str, storage_options: Mapping[str, str]) -> frozenset[str]:
    """Return the names, relative to their base, of data files of the newest version that lie in another base.

    A zero-copy flushed MemTable consists of such files: the WAL entries of its region.
    """
    with translated("read the files of a table", uri):
        dataset = lance.dataset(uri, storage_options=dict(storage_options) or None)
        return frozenset(
            data_file.path
            for fragment in dataset.get_fragments()
            for data_file in fragment.metadata.files
            if data_file.base_id is not None
        )
