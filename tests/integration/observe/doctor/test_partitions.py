"""Indexes of a real table: partitions of vectors, and files at which Lance ends the process that loads them."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.jobs.context import unwatched
from memwal_core.jobs.readability.indexes import IndexFiles, examine_indexes
from testkit.tables.articles import INDEX_KINDS, articles, make_articles_table
from tests.integration.damage.test_forged_pages import forge

FILES = {"BTREE": "page_data.lance", "BITMAP": "bitmap_page_lookup.lance", "INVERTED": "part_0_invert.lance"}
"""Kind of index -> the file of it that is forged."""


def examined(table: BaseTable, *, contents: bool = False) -> IndexFiles:
    return examine_indexes(table, table.state().version, unwatched, contents=contents)


@pytest.mark.req("LEASE-39")
def test_sizes_of_all_partitions_add_up_to_the_rows_and_appended_segments_count(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"))
    rows = table.dataset().count_rows()
    seen = examined(table, contents=True)
    [index] = seen.partitions
    assert index.name in {each.name for each in table.indexes()}
    assert (sum(index.sizes), seen.problems) == (rows, ())
    lance.write_dataset(articles(1_000_000, 40), table.uri, mode="append")
    lance.dataset(table.uri).optimize.optimize_indices(num_indices_to_merge=0)
    [grown] = examined(BaseTable.open(table.uri)).partitions
    assert (len(grown.sizes), sum(grown.sizes)) == (len(index.sizes), rows + 40)


@pytest.mark.req("T6")
def test_index_file_that_ends_whoever_opens_it_is_named_by_the_doctor(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=500, kinds=["IVF_FLAT"])
    [path] = Path(table.uri).glob("_indices/*/auxiliary.idx")
    forge(path)

    [(name, [problem])] = examined(table).problems

    assert name == "vec_idx"
    assert problem.path == str(path.relative_to(table.uri))
    assert "ends the process that decodes it, with SIGABRT" in problem.cause


@pytest.mark.parametrize("lost", ["all", "one"])
def test_index_that_lacks_files_is_named_by_the_doctor_without_loading_any(tmp_path: Path, lost: str) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=500, kinds=["BTREE", "BITMAP"])
    assert examined(table).problems == ()
    [path] = Path(table.uri).glob(f"_indices/*/{FILES['BTREE']}")
    for each in path.parent.iterdir() if lost == "all" else (path,):
        each.unlink()

    [(_, [problem])] = examined(table).problems

    assert problem.path == f"_indices/{path.parent.name}"
    assert ("it is missing" in problem.cause) == (lost == "all")


@pytest.mark.req("T6")
@pytest.mark.long
def test_deep_look_of_the_doctor_names_files_of_every_kind_of_index_that_end_processes(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=500, kinds=[*INDEX_KINDS])
    assert examined(table, contents=True).problems == ()
    forged = [path for name in FILES.values() for path in Path(table.uri).glob(f"_indices/*/{name}")]
    assert len(forged) == len(FILES)
    for path in forged:
        forge(path)

    problems = examined(table, contents=True).problems

    found = {each.path: each.cause for _, files in problems for each in files}
    assert found.keys() == {str(path.relative_to(table.uri)) for path in forged}
    assert all("SIGABRT" in cause for cause in found.values())


@pytest.mark.req("T6")
def test_indexes_that_are_only_defined_or_gone_are_told_apart(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=500, kinds=["BTREE"])
    lance.dataset(table.uri).create_scalar_index("topic", "BTREE", name="topic_idx", train=False)
    assert examined(table, contents=True).problems == ()

    lookup, *_ = Path(table.uri).glob("_indices/*/page_lookup.lance")
    lookup.unlink()
    [(name, _)] = examined(BaseTable.open(table.uri), contents=True).problems
    assert name in {"id_idx", "topic_idx"}
