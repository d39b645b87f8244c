"""Keys with several rows in the base table, and which of the rows is provably the newest.

The order of two rows is that of the commits which wrote them. On tables with stable row ids every row says which
version wrote it; on others the transactions of the retained versions say which version added the row's fragment. Rows
of one commit have no order, and neither have rows from before the oldest retained version. A commit that wrote
columns anew in place may have changed any row of the fragment, whatever the rows say.

Rows in MemTables do not matter here: whatever a later merge brings replaces the row that stays just as it would have
replaced all copies, and readers prefer it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState
from memwal_core.base_table.history.fragment_ages import fragment_ages
from memwal_core.base_table.keys.copies import copies_of, find_repeated_keys
from memwal_core.deduplicate import numbered_columns
from memwal_core.format.columns import ROW_ADDRESS, ROW_NUMBER_BITS, UPDATED_AT
from memwal_core.jobs.repair.plan import DuplicateKeys
from memwal_core.native.casting import no_rows

_SHOWN = 5
_ROW = "__row"


@dataclass(frozen=True, slots=True)
class Duplicates:
    """All rows of the keys that have several, and what is proven of them.

    Attributes:
        older: For each row, whether another row of its key is provably newer than all the others.
        undecided: For each row, whether nothing is proven of its key.
        evidence: What the order rests on.
    """

    version: int
    key: tuple[str, ...]
    rows: pa.Table = field(repr=False)
    older: npt.NDArray[np.bool_] = field(repr=False)
    undecided: npt.NDArray[np.bool_] = field(repr=False)
    evidence: str

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """The addresses of the rows that can go."""
        found: npt.NDArray[np.uint64] = self.rows.column(ROW_ADDRESS).to_numpy()[self.older]
        return found

    def summary(self) -> DuplicateKeys | None:
        """Return what a plan is made from; None if every key has one row."""
        if not self.rows.num_rows:
            return None
        names = list(self.key)
        keys = self.rows.select(names)
        doubtful = keys.filter(pa.array(self.undecided)).group_by(names).aggregate([])
        every = keys.group_by(names).aggregate([])
        sample = (doubtful if doubtful.num_rows else every).slice(0, _SHOWN).to_pylist()
        return DuplicateKeys(
            keys=every.num_rows,
            removable=int(np.count_nonzero(self.older)),
            undecided=doubtful.num_rows,
            evidence=self.evidence,
            version=self.version,
            sample=tuple(sample),
        )


def find_duplicates(table: BaseTable, state: TableState) -> Duplicates:
    """Count the keys of a version, and find out about those that have several rows.

    Holds the rows of these keys in memory.
    """
    key = state.require_primary_key().columns
    dataset = table.dataset(state.version)
    keys = find_repeated_keys(dataset, key)
    if not keys.num_rows:
        nothing = np.zeros(0, dtype=bool)
        empty = no_rows(pa.schema([*dataset.schema, pa.field(ROW_ADDRESS, pa.uint64())]))
        return Duplicates(state.version, key, empty, nothing, nothing, "")
    rows = copies_of(dataset, keys, key)
    first, last, changed = _by_fragment(table, state.version, rows)
    if UPDATED_AT in rows.schema.names:
        written = rows.column(UPDATED_AT).to_numpy().astype(np.int64)
        # Some changes in place give each row of a fragment their version, and others none.
        is_doubtful = written <= changed
        first = np.where(is_doubtful, np.minimum(written, first), written)
        last = np.where(is_doubtful, changed, written)
        evidence = "the version that wrote each row, which the table keeps with its stable row ids"
    else:
        evidence = "the commits that added their fragments"
    older, undecided = decide(rows.select(list(key)), key, first, last)
    return Duplicates(state.version, key, rows, older, undecided, evidence)


def decide(
    keys: pa.Table, key: Sequence[str], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Tell which rows are provably older than the newest row of their key, and of which keys nothing is proven.

    Args:
        keys: The key of each row.
        key: The key columns.
        first: For each row, the earliest version that may have written it.
        last: For each row, the latest.

    Returns:
        For each row whether it is older; for each row whether its key is undecided.
    """
    count = keys.num_rows
    groups = _groups(keys, key)
    # The candidate of each key is the row that was certainly written last: highest ``first``, then highest ``last``.
    order = np.lexsort((last, first, groups))
    ends = np.append(groups[order][1:] != groups[order][:-1], True) if count else np.zeros(0, dtype=bool)
    candidates = order[ends]
    others = np.ones(count, dtype=bool)
    others[candidates] = False
    latest = np.full(len(candidates), -1, dtype=np.int64)
    np.maximum.at(latest, groups[others], last[others])
    decided = first[candidates] > latest
    return others & decided[groups], ~decided[groups]


def _groups(keys: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number the keys from 0; return the number of each row's key."""
    columns, names = numbered_columns(keys, key)
    numbered = columns.append_column(_ROW, pa.array(np.arange(keys.num_rows, dtype=np.int64)))
    lowest = numbered.group_by(names).aggregate([(_ROW, "min")])
    joined = numbered.join(lowest, keys=names).sort_by(_ROW)
    _, groups = np.unique(joined.column(f"{_ROW}_min").to_numpy(), return_inverse=True)
    return groups.astype(np.int64)


def _by_fragment(table: BaseTable, version: int, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each row the first and the last version that may have written it, and the last change in place."""
    owners = (rows.column(ROW_ADDRESS).to_numpy() >> ROW_NUMBER_BITS).astype(np.int64)
    fragments, places = np.unique(owners, return_inverse=True)
    ages = fragment_ages(table, version, fragments.tolist())
    found = [(each.first, each.last, each.changed) for each in (ages[number] for number in fragments.tolist())]
    return np.array(found, dtype=np.int64).T[:, places]
