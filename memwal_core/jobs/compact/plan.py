"""Decide which fragments are worth rewriting: a pure function of the fragments and the settings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import ceil

from memwal_core.base_table import FragmentFacts
from memwal_core.settings import CompactSettings

_FULL_FILE_SHARE = 0.75


class CompactVerdict(StrEnum):
    """Why fragments are rewritten, or why not."""

    MANY_SMALL = "enough small neighbours"
    DELETIONS = "too many deleted rows"
    FORCED = "asked for although there are few"
    TOO_FEW = "too few small neighbours"
    NONE = "no fragment is small or half deleted"
    UNREADABLE = "Lance would write files that nobody can read: a dictionary has indices of fewer than 32 bits"

    @property
    def rewrites(self) -> bool:
        """Whether fragments are rewritten."""
        return self in {CompactVerdict.MANY_SMALL, CompactVerdict.DELETIONS, CompactVerdict.FORCED}


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """What one pass rewrites.

    Attributes:
        candidates: Number of fragments worth rewriting; ``take`` has the first of them.
        take: Ids of the fragments to rewrite in this pass, in the table's order; empty if none.
        rows: Their live rows.
        size_bytes: Size of their files, as far as it is known.
        batch_rows: How many of them to read at once.
    """

    table_uri: str
    version: int
    verdict: CompactVerdict
    fragments: int
    candidates: int
    take: tuple[int, ...]
    rows: int
    size_bytes: int
    batch_rows: int

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "version": self.version,
            "verdict": self.verdict.value,
            "fragments": self.fragments,
            "candidates": self.candidates,
            "take": list(self.take),
            "rows": self.rows,
            "bytes": self.size_bytes,
        }


def plan_compaction(
    table_uri: str,
    version: int,
    fragments: Sequence[FragmentFacts],
    settings: CompactSettings,
    *,
    force: bool = False,
    divided: bool = False,
) -> CompactPlan:
    """Decide which fragments the next pass rewrites; ``fragments`` are in the table's order.

    Lance keeps rows in their order, so only neighbours can become one fragment: a small fragment between large
    ones stays. A fragment with many deleted rows is rewritten alone. ``force`` rewrites small neighbours
    however few they are. ``divided`` between executors, a pass takes as many fragments as have the rows that one
    process would take at most: a commit needs memory for their addresses, and executors repeat little after a loss.
    """
    runs = _runs(fragments, settings)
    candidates = [fragment for run in runs for fragment in run]
    verdict = _verdict(candidates, settings, force=force)
    take = _first(runs, settings, divided=divided) if verdict.rewrites else []
    return CompactPlan(
        table_uri=table_uri,
        version=version,
        verdict=verdict,
        fragments=len(fragments),
        candidates=len(candidates),
        take=tuple(fragment.fragment_id for fragment in take),
        rows=sum(fragment.live_rows for fragment in take),
        size_bytes=sum(fragment.size_bytes or 0 for fragment in take),
        batch_rows=_batch_rows(take, settings),
    )


def _runs(fragments: Sequence[FragmentFacts], settings: CompactSettings) -> list[list[FragmentFacts]]:
    """Return the runs of neighbours that are worth rewriting together."""
    runs: list[list[FragmentFacts]] = [[]]
    for fragment in fragments:
        if is_small(fragment, settings) or _is_half_deleted(fragment, settings):
            runs[-1].append(fragment)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if _is_worth_it(run, settings)]


def _first(runs: Sequence[Sequence[FragmentFacts]], settings: CompactSettings, *, divided: bool) -> list[FragmentFacts]:
    """Return the first fragments of the runs, as many as one commit may rewrite."""
    taken: list[FragmentFacts] = []
    rows = settings.max_source_fragments * settings.target_rows
    for run in runs:
        part = run[: max(settings.max_source_fragments - len(taken), 0)]
        if divided:
            ends = list(accumulate(each.live_rows for each in run))
            part = run[: max(len(part), bisect_right(ends, rows))]
        if _is_worth_it(part, settings):
            taken += part
            rows -= sum(each.live_rows for each in part)
    return taken


def _batch_rows(taken: Sequence[FragmentFacts], settings: CompactSettings) -> int:
    """Return how many rows of the fragment with the widest ones fit into a batch."""
    widest = max((ceil((each.size_bytes or 0) / max(1, each.physical_rows)) for each in taken), default=0)
    return max(1, min(settings.batch_rows, settings.batch_bytes // max(1, widest)))


def _is_worth_it(neighbours: Sequence[FragmentFacts], settings: CompactSettings) -> bool:
    return len(neighbours) > 1 or any(_is_half_deleted(fragment, settings) for fragment in neighbours)


def is_small(fragment: FragmentFacts, settings: CompactSettings) -> bool:
    """Return whether Lance would join a fragment with its neighbours: deleted rows count, which its file has still."""
    # A file that was closed for its size is as large as it gets, however few its rows.
    is_full = (fragment.size_bytes or 0) >= settings.max_file_bytes * _FULL_FILE_SHARE
    return fragment.physical_rows < settings.target_rows and not is_full


def _is_half_deleted(fragment: FragmentFacts, settings: CompactSettings) -> bool:
    return fragment.deleted_rows > settings.deletion_threshold * fragment.physical_rows


def _verdict(candidates: Sequence[FragmentFacts], settings: CompactSettings, *, force: bool) -> CompactVerdict:
    if not candidates:
        return CompactVerdict.NONE
    if any(_is_half_deleted(fragment, settings) for fragment in candidates):
        return CompactVerdict.DELETIONS
    if len(candidates) >= settings.min_fragments:
        return CompactVerdict.MANY_SMALL
    return CompactVerdict.FORCED if force else CompactVerdict.TOO_FEW
