"""`memwal explain`: what a scan would touch, and how new its rows would be."""

from __future__ import annotations

from typing import Annotated

import typer

from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_table, print_json
from memwal_core.reader import Consistency
from memwal_core.reader.scan.scan import ScanRequest


def explain(
    uri: TableUri,
    filter_sql: Annotated[str | None, typer.Option("--filter", help="Condition, in Lance's SQL.")] = None,
    consistency: Annotated[
        Consistency | None, typer.Option(help="Where to look for rows that are not merged yet; `latest` by default.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="An old version, with the region snapshot it holds.")] = None,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Show the plan of a scan: the sources of rows, newest generation first, and the regions left out."""
    table = open_table(uri, storage_option)
    scan = table.scan(ScanRequest(filter_sql=filter_sql), consistency=consistency, version=version)
    left_out = [str(region_id) for region_id in scan.plan.pruned]
    if json:
        print_json({"plan": scan.explain(), "left_out": left_out, "freshness": scan.freshness.to_dict()})
        return
    typer.echo(scan.explain())
    typer.echo(f"regions left out by the filter: {', '.join(left_out) or 'none'}")
    typer.echo(f"rows as of {scan.freshness.taken.isoformat()} (base version {scan.freshness.base_version})")
