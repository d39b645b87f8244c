"""When the rows of fragments were written: which version added them, by the history of the table.

A compaction moves rows without writing them, so a fragment that it made is as old as those it replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import lance

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.errors import MemwalError

_Identity = tuple[int, str]
"""Fragment id and first data file. An id alone can come again after an overwrite."""

_WRITING = (lance.LanceOperation.Append, lance.LanceOperation.Update, lance.LanceOperation.Overwrite)


@dataclass(frozen=True, slots=True)
class Age:
    """The versions between which rows were written, both included; 0 means that it may have been any time before."""

    first: int
    last: int

    def joined(self, other: Age | None) -> Age:
        """Return the span of both."""
        return self if other is None else Age(min(self.first, other.first), max(self.last, other.last))


def fragment_ages(table: TableReader, version: int, fragments: Collection[int]) -> Mapping[int, Age]:
    """Find out when the rows of some fragments of a version were written; opens retained versions, newest first.

    What the history does not tell, because versions were removed or a version was restored, gives a span that
    begins with 0.
    """
    dataset = table.dataset(version)
    with translated("list versions", table.uri):
        older = sorted((int(each["version"]) for each in dataset.versions() if each["version"] < version), reverse=True)
    pending = {identity: frozenset({identity[0]}) for identity in _identities(dataset) if identity[0] in set(fragments)}
    found = _Search(pending, dataset)
    for before in older:
        if not found.pending:
            break
        try:
            previous = table.dataset(before)
        except MemwalError:
            continue  # Removed or damaged: a gap in the history.
        found.step_back(previous)
    return found.finish()


class _Search:
    """Fragments followed from version to older version.

    Args:
        pending: Fragment of the version looked at -> fragments of the first version whose rows it holds.
        dataset: The first version.
    """

    def __init__(self, pending: dict[_Identity, frozenset[int]], dataset: lance.LanceDataset) -> None:
        self.pending = pending
        self._dataset = dataset
        self._ages: dict[int, Age] = {}

    def step_back(self, previous: lance.LanceDataset) -> None:
        """Settle the fragments that the version looked at has and an older one lacks."""
        version = self._dataset.version
        known = set(_identities(previous))
        added = {identity: roots for identity, roots in self.pending.items() if identity not in known}
        self.pending = {identity: roots for identity, roots in self.pending.items() if identity in known}
        operation = _operation(self._dataset, version) if added and previous.version == version - 1 else None
        for identity, roots in added.items():
            for age, origins in _origin(operation, identity, version, known):
                for origin in origins:
                    self.pending[origin] = self.pending.get(origin, frozenset()) | roots
                if age is not None:
                    self._join(roots, age)
        self._dataset = previous

    def finish(self) -> Mapping[int, Age]:
        """Return all ages; what is still pending is at most as old as the last version looked at."""
        for roots in self.pending.values():
            self._join(roots, Age(0, self._dataset.version))
        return self._ages

    def _join(self, roots: Collection[int], age: Age) -> None:
        for root in roots:
            self._ages[root] = age.joined(self._ages.get(root))


def _origin(
    operation: Any,  # noqa: ANN401
    identity: _Identity,
    version: int,
    known: Collection[_Identity],
) -> Iterator[tuple[Age | None, tuple[_Identity, ...]]]:
    """Yield when a fragment's rows were written, or the fragments of the version before that they come from."""
    if isinstance(operation, _WRITING):
        yield Age(version, version), ()
        return
    if isinstance(operation, lance.LanceOperation.Rewrite):
        for group in operation.groups:
            if identity[1] in {_first_file(each) for each in group.new_fragments}:
                replaced = tuple((each.id, _first_file(each)) for each in group.old_fragments)
                if set(replaced) <= set(known):
                    yield None, replaced
                    return
    same = tuple(each for each in known if each[0] == identity[0]) if operation is not None else ()
    if len(same) == 1 and isinstance(operation, lance.LanceOperation.Merge | lance.LanceOperation.Project):
        yield None, same  # Columns were added or dropped; the rows are the same.
        return
    yield Age(0, version), ()


def _operation(dataset: lance.LanceDataset, version: int) -> Any:  # noqa: ANN401
    try:
        with translated("read a transaction", dataset.uri, version=version):
            found = dataset.read_transaction(version)
    except MemwalError:
        return None
    return None if found is None else found.operation


def _identities(dataset: lance.LanceDataset) -> list[_Identity]:
    with translated("list fragments", dataset.uri):
        return [(each.fragment_id, _first_file(each.metadata)) for each in dataset.get_fragments()]


def _first_file(metadata: Any) -> str:  # noqa: ANN401
    return str(metadata.files[0].path) if metadata.files else ""
