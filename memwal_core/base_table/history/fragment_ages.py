"""When the rows of fragments were written: which version added them, by the history of the table.

A compaction moves rows without writing them, so a fragment that it made is as old as those it replaced. A commit that
writes columns of a fragment anew in place says of no row whether it changed, so any row may be as young as the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import lance

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.state import TableState
from memwal_core.base_table.translate import translated
from memwal_core.errors import MemwalError
from memwal_core.format.memwal_index.codec import decode_details

_Identity = tuple[int, str]
"""Fragment id and first data file. An id alone can come again after an overwrite."""

_WRITING = (lance.LanceOperation.Append, lance.LanceOperation.Update, lance.LanceOperation.Overwrite)


TRACED_VERSIONS = 32
"""How far back it is worth looking for a merge: three requests for each version."""


@dataclass(frozen=True, slots=True)
class Age:
    """The versions between which rows were written, both included; 0 means that it may have been any time before.

    Attributes:
        changed: The newest version that changed columns in place, of which rows themselves tell nothing; 0 if none is
            known.
    """

    first: int
    last: int
    changed: int = 0

    def joined(self, other: Age | None) -> Age:
        """Return the span of both."""
        if other is None:
            return self
        return Age(min(self.first, other.first), max(self.last, other.last), max(self.changed, other.changed))


@dataclass(frozen=True, slots=True)
class _Files:
    """Where the values of a fragment are.

    Attributes:
        columns: Field id -> file.
        overlays: What lies above files.
        has_replaced: Whether a file has values of a column that another file replaces.
    """

    columns: Mapping[int, str]
    overlays: tuple[str, ...]
    has_replaced: bool

    @property
    def was_changed(self) -> bool:
        """Whether a commit changed it in place, as far as it shows."""
        return self.has_replaced or bool(self.overlays)

    def is_changed_from(self, older: _Files) -> bool:
        """Return whether a column that an older version of it has, too, is in another file."""
        moved = any(older.columns.get(field, path) != path for field, path in self.columns.items())
        return moved or self.overlays != older.overlays


def fragment_ages(table: TableReader, version: int, fragments: Collection[int]) -> Mapping[int, Age]:
    """Find out when the rows of some fragments of a version were written; opens retained versions, newest first.

    What the history does not tell, because versions were removed or a version was restored, gives a span that
    begins with 0.
    """
    dataset = table.dataset(version)
    with translated("list versions", table.uri):
        older = sorted((int(each["version"]) for each in dataset.versions() if each["version"] < version), reverse=True)
    wanted = set(fragments)
    pending = {identity: frozenset({identity[0]}) for identity in _contents(dataset) if identity[0] in wanted}
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


def fragments_of_merges(table: TableReader, state: TableState, fragments: Collection[int]) -> frozenset[int]:
    """Return those of some fragments of a version whose rows a merge wrote, and nobody changed but to delete them.

    Opens retained versions, newest first, until each fragment is traced to the commit that made it. One that cannot be
    traced within ``TRACED_VERSIONS`` is not among them.
    """
    found: set[int] = set()
    pending = {each: files for (each, _), files in _contents(table.dataset(state.version)).items() if each in fragments}
    progress = state.require_details().merged_generations
    for version in range(state.version - 1, max(0, state.version - 1 - TRACED_VERSIONS), -1):
        if not pending:
            break
        try:
            older, entry = table.dataset(version), table.manifests.read(version).mem_wal
        except MemwalError:
            break  # Removed or damaged.
        before = {} if entry is None else decode_details(entry.payload).merged_generations
        known = {each: files for (each, _), files in _contents(older).items()}
        made = {each for each, files in pending.items() if known.get(each) != files}
        if any(merged > before.get(region_id, 0) for region_id, merged in progress.items()):
            found |= made
        pending = {each: files for each, files in pending.items() if each not in made}
        progress = before
    return frozenset(found)


class _Search:
    """Fragments followed from version to older version.

    Args:
        pending: Fragment of the version looked at -> fragments of the first version whose rows it holds.
        dataset: The first version.
    """

    def __init__(self, pending: dict[_Identity, frozenset[int]], dataset: lance.LanceDataset) -> None:
        self.pending = pending
        self._dataset = dataset
        self._contents = _contents(dataset)
        self._ages: dict[int, Age] = {}

    def step_back(self, previous: lance.LanceDataset) -> None:
        """Settle the fragments that the version looked at has and an older one lacks, and find those it changed."""
        version = self._dataset.version
        known = _contents(previous)
        is_adjacent = previous.version == version - 1 and not self.pending.keys() <= known.keys()
        operation = _operation(self._dataset, version) if is_adjacent else None
        pending: dict[_Identity, frozenset[int]] = {}
        for identity, roots in self.pending.items():
            age, origins = (None, (identity,)) if identity in known else _origin(operation, identity, version, known)
            if age is not None:
                self._join(roots, age if age.first else self._unknown(identity))
            for origin in origins:
                pending[origin] = pending.get(origin, frozenset()) | roots
                is_same = origin[0] == identity[0]
                if is_same and self._contents[identity].is_changed_from(known[origin]):
                    self._join(roots, Age(version, version, version))
        self.pending, self._dataset, self._contents = pending, previous, known

    def finish(self) -> Mapping[int, Age]:
        """Return all ages; what is still pending is at most as old as the last version looked at."""
        for identity, roots in self.pending.items():
            self._join(roots, self._unknown(identity))
        return self._ages

    def _unknown(self, identity: _Identity) -> Age:
        """Return the age of a fragment of which nothing older is known but what its own files tell."""
        version = self._dataset.version
        return Age(0, version, version if self._contents[identity].was_changed else 0)

    def _join(self, roots: Collection[int], age: Age) -> None:
        for root in roots:
            self._ages[root] = age.joined(self._ages.get(root))


def _origin(
    operation: Any,  # noqa: ANN401
    identity: _Identity,
    version: int,
    known: Collection[_Identity],
) -> tuple[Age | None, tuple[_Identity, ...]]:
    """Return when a fragment's rows were written, or the fragments of the version before that they come from."""
    same = tuple(each for each in known if each[0] == identity[0])
    if len(same) == 1 and _keeps_rows(operation, identity[0]):
        return None, same
    if isinstance(operation, _WRITING):
        return Age(version, version), ()
    if isinstance(operation, lance.LanceOperation.Rewrite):
        for group in operation.groups:
            if identity[1] in {_first_file(each) for each in group.new_fragments}:
                replaced = tuple((each.id, _first_file(each)) for each in group.old_fragments)
                if set(replaced) <= set(known):
                    return None, replaced
    return Age(0, version), ()


def _keeps_rows(operation: Any, fragment: int) -> bool:  # noqa: ANN401
    """Return whether a fragment has the rows that it had before a commit, although another file may be its first."""
    if isinstance(operation, lance.LanceOperation.Update):
        return fragment in {each.id for each in operation.updated_fragments}
    if isinstance(operation, lance.LanceOperation.DataReplacement):
        return fragment in {each.fragment_id for each in operation.replacements}
    return isinstance(operation, lance.LanceOperation.Merge | lance.LanceOperation.Project)


def _operation(dataset: lance.LanceDataset, version: int) -> Any:  # noqa: ANN401
    try:
        with translated("read a transaction", dataset.uri, version=version):
            found = dataset.read_transaction(version)
    except MemwalError:
        return None
    return None if found is None else found.operation


def _contents(dataset: lance.LanceDataset) -> dict[_Identity, _Files]:
    with translated("list fragments", dataset.uri):
        return {
            (each.fragment_id, _first_file(each.metadata)): _files(each.metadata) for each in dataset.get_fragments()
        }


def _files(metadata: Any) -> _Files:  # noqa: ANN401
    named = [(field, str(each.path)) for each in metadata.files for field in each.fields]
    return _Files(
        {field: path for field, path in named if field >= 0},
        tuple(map(str, metadata.overlays or ())),
        has_replaced=any(field < 0 for field, _ in named),
    )


def _first_file(metadata: Any) -> str:  # noqa: ANN401
    return str(metadata.files[0].path) if metadata.files else ""
