"""Opening a Lance table as the source of a batch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import lance

from memwal_core.base_table import BaseTable, translated
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader


def open_lance(place: str, storage_options: Mapping[str, str]) -> lance.LanceDataset:
    """Open the newest version of a Lance table, which has all rows that were written before.

    Raises:
        InvalidRequestError: It is damaged, or rows that were put into it wait for their merge.
    """
    try:
        _require_merged(place, storage_options)
        with translated("read a source", place):
            return lance.dataset(place, storage_options=dict(storage_options) or None)
    except CorruptionError as error:
        raise InvalidRequestError(
            "the source is damaged",
            remedy="replace it by one that is whole, or take it out of the batch",
            source=place,
            cause=str(error),
        ) from None


def _require_merged(place: str, storage_options: Mapping[str, str]) -> None:
    table = BaseTable.open(place, storage_options=storage_options)
    state = table.state()
    if state.entry is None:
        table.require_no_regions(state)
        return
    plan = MergedReader(table, consistency=Consistency.DURABLE).scan().plan
    waiting = [str(region.region_id) for region in plan.regions if region.generations]
    if waiting:
        raise InvalidRequestError(
            "rows that were put into the source wait for their merge, and its base table lacks them",
            remedy=f"run `memwal maintain {shlex.quote(place)}`, then the batch again",
            source=place,
            regions=waiting,
        )
