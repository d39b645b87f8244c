"""Which files outside of itself a table is made of."""

from __future__ import annotations

from collections.abc import Mapping

import lance

from memwal_core.base_table.translate import translated


def files_of_other_bases(uri: str, storage_options: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the data files of a table's newest version that lie in another base.

    A zero-copy flushed MemTable consists of such files: the WAL entries of its region. Reads
    metadata only.

    Args:
        uri: Address of the table.
        storage_options: For pylance.

    Returns:
        File names relative to their base.

    Raises:
        ObjectNotFoundError: There is no table at the address.
        UnavailableError: Storage failed. Back off and retry.
    """
    with translated("read the files of a table", uri):
        dataset = lance.dataset(uri, storage_options=dict(storage_options) or None)
        return frozenset(
            data_file.path
            for fragment in dataset.get_fragments()
            for data_file in fragment.metadata.files
            if data_file.base_id is not None
        )
