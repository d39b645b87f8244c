"""Read plans as text: what would run, in the words of the MemWAL specification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memwal_core.reader.index_gap.gap import IndexGap
from memwal_core.reader.names import BASE, GUARD, NEAREST, SCAN, STALE, TAKE_LAST, WORDS, source_name
from memwal_core.reader.plan.read_plan import ReadPlan
from memwal_core.reader.plan.sources import SourceKind

_INDENT = "  "


def explain_scan(plan: ReadPlan, key: Sequence[str], filter_sql: str | None) -> str:
    """Return the tree of a scan."""
    condition = f", filter=[{filter_sql}]" if filter_sql is not None else ""
    scans = [f"{SCAN}: {source}{condition}" for source in _sources(plan)]
    return _nested(
        f"DeduplicateExec: partition_by=[{', '.join(key)}], order_by=[_gen DESC, _rowaddr DESC]", "UnionExec", scans
    )


def explain_lookup(plan: ReadPlan, condition: str) -> str:
    """Return the tree of a point lookup. Only flushed MemTables have key filters, which are asked first."""
    lines = ["CoalesceFirstExec: return_first_non_null"]
    for each in (each for region in plan.regions for each in region.generations):
        name = source_name(each)
        depth = 1
        if each.kind is SourceKind.FLUSHED:
            lines.append(f"{_INDENT}{GUARD}: bf[{name.replace('[', '][', 1)}")
            depth = 2
        lines.append(f"{_INDENT * depth}{TAKE_LAST}: {name}, filter=[{condition}]")
    lines.append(f"{_INDENT}{TAKE_LAST}: {BASE}, filter=[{condition}]")
    return "\n".join(lines)


def explain_vector_search(plan: ReadPlan, k: int, gap: IndexGap | None = None) -> str:
    """Return the tree of a vector search; merged flushed MemTables may replace unindexed fragments."""
    searches = [f"{NEAREST}: {source}, k={k}" for source in _sources(plan, gap)]
    return _nested(f"GlobalLimitExec: limit={k}", "SortExec: order_by=[_dist ASC]", _stale(plan), "UnionExec", searches)


def explain_text_search(plan: ReadPlan, k: int, query: str, gap: IndexGap | None = None) -> str:
    """Return the tree of a full-text search; see ``explain_vector_search``."""
    searches = [f'{WORDS}: {source}, query="{query}"' for source in _sources(plan, gap)]
    return _nested(
        f"GlobalLimitExec: limit={k}",
        "SortExec: order_by=[_bm25 DESC]",
        _stale(plan),
        "GlobalBM25Exec",
        "UnionExec",
        searches,
    )


def _nested(*levels: str | Iterable[str]) -> str:
    lines: list[str] = []
    for depth, level in enumerate(levels):
        lines.extend(_INDENT * depth + line for line in ([level] if isinstance(level, str) else level))
    return "\n".join(lines)


def _sources(plan: ReadPlan, gap: IndexGap | None = None) -> list[str]:
    standing_in = {} if gap is None else gap.standing_in
    newer = [
        source_name(each)
        for region in plan.regions
        for each in (*region.generations, *standing_in.get(region.region_id, ()))
    ]
    return [BASE, *newer]


def _stale(plan: ReadPlan) -> str:
    """Return what leaves older rows out: the keys of newer generations themselves, which are read anyway."""
    newer = [source_name(each) for region in plan.regions for each in region.generations]
    return f"{STALE}: newer_keys=[{', '.join(newer)}]"
