"""The fragments of a base table, and rewriting small or half-deleted ones into larger ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lance.optimize import Compaction, CompactionTask, RewriteResult

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.translate import translated


@dataclass(frozen=True, slots=True)
class FragmentFacts:
    """One fragment of a table version; ``size_bytes`` is None if Lance did not record it."""

    fragment_id: int
    physical_rows: int
    deleted_rows: int
    size_bytes: int | None

    @property
    def live_rows(self) -> int:
        """Rows that readers see."""
        return self.physical_rows - self.deleted_rows


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """How fragments are rewritten.

    Attributes:
        max_file_bytes: A file ends at this size even with fewer rows.
        deletion_threshold: Share of deleted rows from which a fragment is rewritten on its own.
        batch_rows: Rows read at once.
        threads: Groups of fragments rewritten at once.
    """

    target_rows: int
    max_file_bytes: int
    deletion_threshold: float
    batch_rows: int
    threads: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What one compaction did; ``version`` is the one it read if it changed nothing."""

    version: int
    fragments_removed: int
    fragments_added: int


def list_fragments(table: TableReader, version: int) -> tuple[FragmentFacts, ...]:
    """Return the fragments of a version in the table's order, from its metadata alone."""
    dataset = table.dataset(version)
    with translated("list fragments", table.uri, version=version):
        found = [fragment.metadata for fragment in dataset.get_fragments()]
    return tuple(
        FragmentFacts(
            fragment_id=each.id,
            physical_rows=each.physical_rows or 0,
            deleted_rows=(each.deletion_file.num_deleted_rows or 0) if each.deletion_file is not None else 0,
            size_bytes=_sum_if_known([file.file_size_bytes for file in each.files]),
        )
        for each in found
    )


Rewrite = Callable[[Sequence[CompactionTask]], Sequence[RewriteResult]]
"""Has every task done by ``rewrite_fragments``, in any process."""


def compact_fragments(
    table: BaseTable,
    *,
    read_version: int,
    keep: Collection[int],
    options: CompactionOptions,
    rewrite: Rewrite | None = None,
) -> CompactionResult:
    """Rewrite fragments of a version, except those in ``keep``; rows, their order and merge progress stay.

    Indexes are moved to the new row addresses in the same commit. Lance can defer that, but indexes then
    answer with old addresses, which has lost rows: it is never deferred here, not even where the table's own
    configuration asks for it. The move makes Lance forget index catch-up, so extend the indexes afterwards.

    With ``rewrite``, other processes write the new files; indexes are moved, and the version is made, here.
    """
    chosen = _lance_options(keep, options)
    with (
        table.committing(read_version) as dataset,
        translated("compact fragments", table.uri, read_version=read_version),
    ):
        if rewrite is None:
            metrics = Compaction.execute(dataset, chosen)
        else:
            rewritten = rewrite(Compaction.plan(dataset, chosen).tasks)
            metrics = Compaction.commit(dataset, list(rewritten), chosen)
        return CompactionResult(int(dataset.version), metrics.fragments_removed, metrics.fragments_added)


def rewrite_fragments(table: TableReader, task: CompactionTask) -> RewriteResult:
    """Write the rows of some fragments of a version as new fragments, which no version names yet.

    Doing it again writes other files; those that are not used are removed with old versions.
    """
    version = int(task.read_version)
    dataset = table.dataset(version)
    with translated("rewrite fragments", table.uri, version=version):
        return task.execute(dataset)


def _lance_options(keep: Collection[int], options: CompactionOptions) -> Any:  # noqa: ANN401 - pylance's own form
    return {
        "target_rows_per_fragment": options.target_rows,
        "max_bytes_per_file": options.max_file_bytes,
        "materialize_deletions": True,
        "materialize_deletions_threshold": options.deletion_threshold,
        "defer_index_remap": False,
        "num_threads": options.threads,
        "batch_size": options.batch_rows,
        "excluded_fragment_ids": sorted(keep),
    }


def _sum_if_known(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
