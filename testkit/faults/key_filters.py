"""Key filters that lie, as a writer with a bug would write them."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from memwal_core.key_filter import KEY_FILTER_NAME, KeyFilter

_SAMPLED = 64
"""As many keys as readers compare with the filter, and the same ones: these do not show the lie."""


def forget_keys(uri: str, generation: Path, key: str) -> int:
    """Give a flushed MemTable a valid filter that lacks most of its keys; return how many."""
    keys = lance.dataset(str(generation)).to_table(columns=[key])
    kept = np.unique(np.linspace(0, keys.num_rows - 1, _SAMPLED).astype(np.int64))
    lying = KeyFilter.of(keys.take(pa.array(kept)), [key], 0.001)
    (generation / KEY_FILTER_NAME).write_bytes(lying.to_bytes(str(generation.relative_to(uri))))
    return int(keys.num_rows) - len(kept)
