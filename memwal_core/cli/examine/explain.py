"""`memwal explain`: what a read would touch, and with `--analyze` what it touched."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.rows import keys_of
from memwal_core.errors import InvalidRequestError
from memwal_core.reader import Consistency
from memwal_core.reader.plan.read_plan import ReadPlan
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.table import Table


@dataclass(frozen=True, slots=True)
class _Read:
    """A query: what it would read, its plan as text, and doing it."""

    plan: Callable[[TableView], ReadPlan]
    text: Callable[[TableView], str]
    run: Callable[[TableView], pa.Table]


def explain(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    filter_sql: Annotated[str | None, typer.Option("--filter", help="Condition, in Lance's SQL.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Explain a lookup of this key instead of a scan. Repeatable.")
    ] = None,
    nearest: Annotated[
        str | None, typer.Option(help="Explain a vector search instead.", metavar="COLUMN=[0.1,...]")
    ] = None,
    words: Annotated[
        str | None, typer.Option(help="Explain a full-text search instead.", metavar="COLUMN=WORDS")
    ] = None,
    rows: Annotated[int, typer.Option("-k", min=1, help="How many rows a search returns.")] = 10,
    consistency: Annotated[
        Consistency | None, typer.Option(help="Where to look for rows that are not merged yet; `latest` by default.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="An old version, with the region snapshot it holds.")] = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run it, and show what it did: counts, requests, bytes and time.")
    ] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Show the plan of a read: the sources of rows, newest generation first, and the regions left out.

    With --analyze the read is run, with nothing cached, and what it did is shown instead.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    table = open_table(uri, storage_option)
    read = _read(table, filter_sql, key, _search(nearest, words, filter_sql, rows))
    if analyze:
        analysis = table.analyze(read.run, consistency=consistency, version=version)
        if json:
            print_json(analysis.to_dict())
        else:
            typer.echo(analysis.to_text())
        return
    view = table.view(consistency, version)
    plan, text = read.plan(view), read.text(view)
    left_out, freshness = [str(region_id) for region_id in plan.pruned], plan.freshness
    if json:
        print_json({"plan": text, "left_out": left_out, "freshness": freshness.to_dict()})
        return
    typer.echo(text)
    typer.echo(f"regions left out: {', '.join(left_out) or 'none'}")
    typer.echo(f"rows as of {freshness.taken.isoformat()} (base version {freshness.base_version})")


def _read(table: Table, filter_sql: str | None, keys: list[str] | None, search: _Read | None) -> _Read:
    if (search is not None) + bool(keys) > 1 or (keys and filter_sql is not None):
        raise InvalidRequestError(
            "only one read can be explained at a time", remedy="name keys, or a search, or neither; keys take no filter"
        )
    if search is not None:
        return search
    if keys:
        wanted = keys_of(table.base.state(), keys)
        return _Read(
            lambda view: view.lookup_plan(wanted),
            lambda view: view.explain_lookup(wanted),
            lambda view: view.lookup(wanted),
        )
    return _Read(
        _planned(filter_sql),
        lambda view: view.scan(ScanRequest(filter_sql=filter_sql)).explain(),
        lambda view: view.scan(ScanRequest(filter_sql=filter_sql)).to_arrow(),
    )


def _planned(filter_sql: str | None) -> Callable[[TableView], ReadPlan]:
    return lambda view: view.scan(ScanRequest(filter_sql=filter_sql)).plan


def _search(nearest: str | None, words: str | None, filter_sql: str | None, k: int) -> _Read | None:
    if nearest is not None and words is not None:
        raise InvalidRequestError("only one read can be explained at a time", remedy="name one search")
    if nearest is not None:
        column, text = _named(nearest, "vec=[0.1,0.2]")
        vector_query = VectorQuery(column, _vector(text), k=k, filter_sql=filter_sql)
        return _Read(
            _planned(filter_sql),
            lambda view: view.explain_vector_search(vector_query),
            lambda view: view.vector_search(vector_query),
        )
    if words is not None:
        column, text = _named(words, "text=some words")
        text_query = TextQuery(column, text, k=k, filter_sql=filter_sql)
        return _Read(
            _planned(filter_sql),
            lambda view: view.explain_full_text_search(text_query),
            lambda view: view.full_text_search(text_query),
        )
    return None


def _named(text: str, example: str) -> tuple[str, str]:
    column, separator, value = text.partition("=")
    if not separator:
        raise InvalidRequestError("a search names a column", remedy=f"write it as in `{example}`", found=text)
    return column, value


def _vector(text: str) -> np.ndarray:
    try:
        return np.asarray(json_format.loads(text), dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(
            "a vector is a JSON list of numbers", remedy="write it as in `vec=[0.1,0.2]`", found=text[:80]
        ) from error
