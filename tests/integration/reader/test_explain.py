"""Plans read like those of the MemWAL specification, for its reference set-up, where they are true of what runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memwal_core.reader import Consistency
from memwal_core.reader.explain import explain_text_search, explain_vector_search
from memwal_core.reader.scan.scan import ScanRequest
from testkit.tables.readable import Reference, keys_of, make_reference

SCAN = """\
DeduplicateExec: partition_by=[id], order_by=[_gen DESC, _rowaddr DESC]
  UnionExec
    ScanExec: base_table[gen=-1], filter=[score > 5.0]
    ScanExec: region_A[gen=2], filter=[score > 5.0]
    ScanExec: region_A[gen=1], filter=[score > 5.0]
    ScanExec: region_B[gen=3], filter=[score > 5.0]
    ScanExec: region_B[gen=2], filter=[score > 5.0]
    ScanExec: region_B[gen=1], filter=[score > 5.0]"""

LOOKUP = """\
CoalesceFirstExec: return_first_non_null
  TakeLastExec: region_A[gen=2], filter=[id = {key}]
  BloomFilterGuardExec: bf[region_A][gen=1]
    TakeLastExec: region_A[gen=1], filter=[id = {key}]
  TakeLastExec: base_table[gen=-1], filter=[id = {key}]"""

STALE = (
    "FilterStaleExec: newer_keys=[region_A[gen=2], region_A[gen=1], region_B[gen=3], region_B[gen=2], region_B[gen=1]]"
)

VECTOR = f"""\
GlobalLimitExec: limit=9
  SortExec: order_by=[_dist ASC]
    {STALE}
      UnionExec
        KNNExec: base_table[gen=-1], k=9
        KNNExec: region_A[gen=2], k=9
        KNNExec: region_A[gen=1], k=9
        KNNExec: region_B[gen=3], k=9
        KNNExec: region_B[gen=2], k=9
        KNNExec: region_B[gen=1], k=9"""

TEXT = f"""\
GlobalLimitExec: limit=9
  SortExec: order_by=[_bm25 DESC]
    {STALE}
      GlobalBM25Exec
        UnionExec
          FTSExec: base_table[gen=-1], query="search terms"
          FTSExec: region_A[gen=2], query="search terms"
          FTSExec: region_A[gen=1], query="search terms"
          FTSExec: region_B[gen=3], query="search terms"
          FTSExec: region_B[gen=2], query="search terms"
          FTSExec: region_B[gen=1], query="search terms\""""


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Reference]:
    made = make_reference(str(tmp_path / "t"))
    yield made
    made.writer.close()


def named(plan: str, reference: Reference) -> str:
    """Return a plan with the names of the specification instead of regions' ids."""
    for region_id, name in reference.names.items():
        plan = plan.replace(f"region_{region_id}", name)
    return plan


@pytest.mark.req("RD-35", "RD-37")
def test_scan_plan_is_that_of_the_specification(reference: Reference) -> None:
    view = reference.table.view(Consistency.IN_PROCESS)

    assert named(view.scan(ScanRequest(filter_sql="score > 5.0")).explain(), reference) == SCAN


@pytest.mark.req("RD-47")
def test_lookup_plan_prunes_the_other_region(reference: Reference) -> None:
    view = reference.table.view(Consistency.IN_PROCESS)
    key = reference.keys_a[3]

    assert named(view.explain_lookup(keys_of(key)), reference) == LOOKUP.format(key=key)


@pytest.mark.req("RD-50", "RD-54")
def test_search_plans_are_those_of_the_specification(reference: Reference) -> None:
    plan = reference.table.view(Consistency.IN_PROCESS).scan().plan

    assert named(explain_vector_search(plan, 9), reference) == VECTOR
    assert named(explain_text_search(plan, 9, "search terms"), reference) == TEXT


@pytest.mark.req("RD-03", "RD-17")
def test_sources_are_tagged_by_region_and_generation(reference: Reference) -> None:
    plan = reference.table.view(Consistency.IN_PROCESS).scan().plan
    named = [(None if region is None else reference.names[region], number) for region, number in plan.sources]

    assert named == [
        (None, -1),
        ("region_A", 2),
        ("region_A", 1),
        ("region_B", 3),
        ("region_B", 2),
        ("region_B", 1),
    ]


@pytest.mark.req("RD-22", "RD-23")
def test_key_filter_leaves_one_region(reference: Reference) -> None:
    view = reference.table.view(Consistency.IN_PROCESS)
    plan = view.scan(ScanRequest(filter_sql=f"id = {reference.keys_b[0]}")).plan

    assert [reference.names[region.region_id] for region in plan.regions] == ["region_B"]
    assert [reference.names[region] for region in plan.pruned] == ["region_A"]
