"""Fragments of an opened version by their ids: `get_fragments` makes an object for each one that the table has."""

from __future__ import annotations

from collections.abc import Iterable

import lance


def fragments_of(dataset: lance.LanceDataset, ids: Iterable[int]) -> list[lance.LanceFragment]:
    """Return fragments by id; ids without a fragment are ignored."""
    found = (dataset.get_fragment(each) for each in ids)
    return [fragment for fragment in found if fragment is not None]
