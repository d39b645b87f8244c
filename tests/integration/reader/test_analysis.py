"""What a read did is counted while it runs: sources, filters, masked rows, requests and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.reader import Consistency
from memwal_core.reader.analysis.analyze import Analysis
from memwal_core.reader.lookup.lookup import Lookup
from memwal_core.reader.names import BASE
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.articles import DIMENSIONS, articles, make_articles_table
from testkit.tables.people import people
from testkit.tables.readable import Reference, keys_of, make_reference


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Reference]:
    made = make_reference(str(tmp_path / "t"))
    yield made
    made.writer.close()


def counts(analysis: Analysis, node: str, reference: Reference | None = None) -> dict[str, dict[str, int]]:
    """Return source -> counts of a node."""
    names = {f"region_{region}": name for region, name in reference.names.items()} if reference is not None else {}
    found = {}
    for each in analysis.nodes:
        if each.name == node:
            region, bracket, rest = each.source.partition("[")
            found[names.get(region, region) + bracket + rest] = dict(each.counts)
    return found


@pytest.mark.req("RD-17", "RD-34", "RD-38")
def test_scan_opens_each_source_once_and_masks_what_newer_generations_write(reference: Reference) -> None:
    """Base rows 0 to 39; of these, three keys have newer versions."""
    analysis = reference.table.analyze(lambda view: view.scan().to_arrow(), consistency=Consistency.IN_PROCESS)

    assert analysis.rows == 60
    assert sorted(counts(analysis, "OpenExec", reference)) == [
        BASE,
        "region_A[gen=1]",
        "region_B[gen=1]",
        "region_B[gen=2]",
    ]
    assert {name: each["keys"] for name, each in counts(analysis, "ReadKeysExec", reference).items()} == {
        "region_A[gen=2]": 1,
        "region_A[gen=1]": len(_routed_to(reference, 100, 120)[0]),
        "region_B[gen=3]": 1,
        "region_B[gen=2]": 2,
        "region_B[gen=1]": len(_routed_to(reference, 100, 120)[1]),
    }
    assert counts(analysis, "ScanExec")[BASE] == {"rows": 37, "rows_masked": 3}
    assert sum(each["rows"] for each in counts(analysis, "TakeExec").values()) == 60 - 37
    assert analysis.filters == ()


def test_narrow_scan_reads_every_base_row_and_compares_keys(reference: Reference) -> None:
    """Its counters differ from those of a wide one, as what it does differs."""
    request = ScanRequest(columns=("id",))

    analysis = reference.table.analyze(lambda view: view.scan(request).to_arrow(), consistency=Consistency.LATEST)

    assert counts(analysis, "ScanExec")[BASE]["rows"] == 40
    assert counts(analysis, "FilterStaleExec")[BASE] == {"rows": 38, "rows_masked": 2}
    assert analysis.rows_masked == 2


def _routed_to(reference: Reference, first: int, end: int) -> tuple[list[int], list[int]]:
    view = reference.table.view(Consistency.LATEST)
    generations = {reference.names[each.region_id]: each for each in view.scan().plan.regions}
    found = []
    for name in ("region_A", "region_B"):
        uri = generations[name].generations[-1].path
        ids = lance.dataset(uri).to_table(columns=["id"]).column("id").to_pylist()
        found.append([key for key in ids if first <= key < end])
    return found[0], found[1]


@pytest.mark.req("RD-22", "RD-36")
def test_scan_with_a_filter_touches_the_regions_that_can_match_and_reads_fewer_rows(reference: Reference) -> None:
    request = ScanRequest(filter_sql=f"id = {reference.keys_b[5]}")

    analysis = reference.table.analyze(lambda view: view.scan(request).to_arrow())

    assert analysis.rows == 1
    assert sorted(counts(analysis, "OpenExec", reference)) == [BASE, "region_B[gen=1]", "region_B[gen=2]"]
    assert counts(analysis, "ScanExec")[BASE]["rows"] == 1


@pytest.mark.req("RD-19", "RD-42", "RD-47")
def test_lookup_asks_the_filters_of_its_region_newest_first_and_stops_where_the_key_is(reference: Reference) -> None:
    latest = Consistency.LATEST
    newest, only_base = reference.keys_b[0], reference.keys_b[5]

    found = reference.table.analyze(lambda view: view.lookup(keys_of(newest)), consistency=latest)
    base = reference.table.analyze(lambda view: view.lookup(keys_of(only_base)), consistency=latest)

    assert counts(found, "BloomFilterGuardExec", reference) == {"region_B[gen=2]": {"keys": 1, "keys_ruled_out": 0}}
    assert counts(found, "TakeLastExec", reference) == {"region_B[gen=2]": {"keys": 1, "rows": 1, "deleted": 0}}
    assert counts(base, "BloomFilterGuardExec", reference) == {
        "region_B[gen=2]": {"keys": 1, "keys_ruled_out": 1},
        "region_B[gen=1]": {"keys": 1, "keys_ruled_out": 1},
    }
    assert counts(base, "TakeLastExec", reference) == {BASE: {"keys": 1, "rows": 1}}
    assert counts(base, "OpenExec") == {BASE: {}}


def test_guard_that_is_not_asked_does_not_show(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the text follows what ran, and no template."""
    in_generation = Lookup._in_generation

    def unguarded(self: Lookup, source, keys: pa.Table, empty: pa.Table):
        if source.rows is not None:
            return in_generation(self, source, keys, empty)
        return self._in_flushed(source, keys, empty)

    monkeypatch.setattr(Lookup, "_in_generation", unguarded)
    analysis = reference.table.analyze(
        lambda view: view.lookup(keys_of(reference.keys_b[5])), consistency=Consistency.LATEST
    )

    assert analysis.filters == ()
    assert "filters asked: 0" in analysis.to_text()
    assert len(analysis.sources_opened) == 3


def test_requests_and_bytes_are_those_of_the_run(reference: Reference) -> None:
    whole = reference.table.analyze(lambda view: view.scan().to_arrow())
    again = reference.table.analyze(lambda view: view.scan().to_arrow())
    narrow = reference.table.analyze(lambda view: view.scan(ScanRequest(columns=("id",))).to_arrow())

    assert whole.requests == again.requests
    assert whole.requests.calls["get"] > 0
    assert whole.requests.lance_read_bytes > narrow.requests.lance_read_bytes > 0
    assert whole.seconds > 0


@pytest.fixture
def searched(tmp_path: Path) -> Table:
    base = make_articles_table(str(tmp_path / "t"), rows=1000, kinds=("INVERTED", "IVF_FLAT"))
    with TableWriter.open(base) as writer:
        writer.put(articles(990, 40, name="fresh"))
        writer.flush()
    return Table.open(base.uri)


@pytest.mark.req("RD-50")
def test_vector_search_shows_the_sources_that_it_searched(searched: Table) -> None:
    query = VectorQuery("vec", np.zeros(DIMENSIONS, np.float32), k=5)

    analysis = searched.analyze(lambda view: view.vector_search(query))

    assert analysis.rows == 5
    assert {BASE, "rows in memory"} <= set(counts(analysis, "KNNExec"))
    assert sum(each["keys"] for each in counts(analysis, "ReadKeysExec").values()) == 40


@pytest.mark.req("RD-54")
def test_text_search_shows_its_segments_and_the_rows_it_looked_up(searched: Table) -> None:
    analysis = searched.analyze(lambda view: view.full_text_search(TextQuery("title", "fresh", k=50)))

    assert analysis.rows == 40
    assert counts(analysis, "FTSExec")[""]["matches"] == 40
    assert sum(each["rows"] for each in counts(analysis, "TakeLastExec").values()) == 40


def test_read_without_analysis_collects_nothing(reference: Reference) -> None:
    view = reference.table.view(Consistency.LATEST)
    view.scan().to_arrow()

    assert view._opened.trace.nodes == ()


def test_analysis_of_another_read_is_not_warmed_by_an_earlier_one(reference: Reference) -> None:
    reference.table.to_arrow(consistency=Consistency.LATEST)
    reference.table.lookup(people(1).select(["id"]))

    analysis = reference.table.analyze(lambda view: view.scan().to_arrow(), consistency=Consistency.LATEST)

    assert len(analysis.sources_opened) == 4
