"""What keeps a lookup from opening generations that certainly do not hold a key."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.reader.sources import GenerationSource


class KeyGuard(Protocol):
    """Filters of generations. A wrong yes costs a read; a wrong no loses rows and must not happen."""

    def may_contain(self, source: GenerationSource, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Tell for each key whether a generation may write or delete it.

        Args:
            source: A flushed MemTable.
            keys: The key columns.
        """
        ...


class OpenGuard:
    """Lets everything through: for generations that have no filter."""

    def may_contain(self, source: GenerationSource, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Return yes for each key."""
        del source
        return np.ones(keys.num_rows, dtype=bool)
