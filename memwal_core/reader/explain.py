"""Read plans as text, in the words of the MemWAL specification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from memwal_core.format.region_manifest.model import BASE_TABLE_GENERATION
from memwal_core.ids import RegionId
from memwal_core.reader.index_gap.gap import IndexGap
from memwal_core.reader.plan.read_plan import ReadPlan

_BASE = f"base_table[gen={BASE_TABLE_GENERATION}]"
_INDENT = "  "

RegionNames = Mapping[RegionId, str]


def explain_scan(plan: ReadPlan, key: Sequence[str], filter_sql: str | None, names: RegionNames) -> str:
    """Return the tree of a scan."""
    condition = f", filter=[{filter_sql}]" if filter_sql is not None else ""
    scans = [f"ScanExec: {source}{condition}" for source in _sources(plan, names)]
    return _nested(
        f"DeduplicateExec: partition_by=[{', '.join(key)}], order_by=[_gen DESC, _rowaddr DESC]", "UnionExec", scans
    )


def explain_lookup(plan: ReadPlan, condition: str, names: RegionNames) -> str:
    """Return the tree of a point lookup."""
    lines = ["CoalesceFirstExec: return_first_non_null"]
    for region in plan.regions:
        name = _name(region.region_id, names)
        for each in region.generations:
            lines.append(f"{_INDENT}BloomFilterGuardExec: bf[{name}][gen={each.generation}]")
            lines.append(f"{_INDENT * 2}TakeLastExec: {name}[gen={each.generation}], filter=[{condition}]")
    lines.append(f"{_INDENT}TakeLastExec: {_BASE}, filter=[{condition}]")
    return "\n".join(lines)


def explain_vector_search(plan: ReadPlan, k: int, names: RegionNames, gap: IndexGap | None = None) -> str:
    """Return the tree of a vector search; merged flushed MemTables may replace unindexed fragments."""
    searches = [f"KNNExec: {source}, k={k}" for source in _sources(plan, names, gap)]
    return _nested(
        f"GlobalLimitExec: limit={k}", "SortExec: order_by=[_dist ASC]", _stale(plan, names), "UnionExec", searches
    )


def explain_text_search(plan: ReadPlan, k: int, query: str, names: RegionNames, gap: IndexGap | None = None) -> str:
    """Return the tree of a full-text search; see ``explain_vector_search``."""
    searches = [f'FTSExec: {source}, query="{query}"' for source in _sources(plan, names, gap)]
    return _nested(
        f"GlobalLimitExec: limit={k}",
        "SortExec: order_by=[_bm25 DESC]",
        _stale(plan, names),
        "GlobalBM25Exec",
        "UnionExec",
        searches,
    )


def _nested(*levels: str | Iterable[str]) -> str:
    lines: list[str] = []
    for depth, level in enumerate(levels):
        lines.extend(_INDENT * depth + line for line in ([level] if isinstance(level, str) else level))
    return "\n".join(lines)


def _sources(plan: ReadPlan, names: RegionNames, gap: IndexGap | None = None) -> list[str]:
    standing_in = {} if gap is None else gap.standing_in
    newer = [
        f"{_name(region.region_id, names)}[gen={each.generation}]"
        for region in plan.regions
        for each in (*region.generations, *standing_in.get(region.region_id, ()))
    ]
    return [_BASE, *newer]


def _stale(plan: ReadPlan, names: RegionNames) -> str:
    filters = [
        f"bf[{_name(region.region_id, names)}][gen={each.generation}]"
        for region in plan.regions
        for each in region.generations
    ]
    return f"FilterStaleExec: bloom_filters=[{', '.join(filters)}]"


def _name(region_id: RegionId, names: RegionNames) -> str:
    return names.get(region_id, f"region_{region_id}")
