"""What Lance opened, looked at before it hands over rows.

Arrow's interface to other languages knows no error for a column whose name or type it cannot spell, for example with a
NUL in it: the first batch ends the process. Asking for the schema instead raises, and what is raised becomes an error.
"""

from __future__ import annotations

from collections.abc import Mapping

import lance
from lance.file import LanceFileReader

from memwal_core.base_table.keys.primary_key import require_plain_names
from memwal_core.base_table.translate import decoding


def require_sound(dataset: lance.LanceDataset) -> lance.LanceDataset:
    """Return a dataset whose columns can be handed over, and have names of their own.

    Raises:
        CorruptionError: They cannot, or have not.
    """
    with decoding(dataset.uri):
        require_plain_names(dataset.schema, dataset.version)
    return dataset


def open_file(uri: str, storage_options: Mapping[str, str]) -> LanceFileReader:
    """Open a Lance file that was just listed, and whose columns can be handed over.

    Raises:
        CorruptionError: It is not a Lance file, or they cannot.
    """
    with decoding(uri):
        reader = LanceFileReader(uri, storage_options=dict(storage_options) or None)
        _ = reader.metadata().schema
    return reader
