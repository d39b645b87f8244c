"""`memwal status`: the state of a table and its regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.cli.examine.check import check_health
from memwal_core.cli.options import AsJson, OutputVocabulary, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_grid
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.thaw.report import explain
from memwal_core.jobs.view import Grid
from memwal_core.observe.lifecycle import GenerationSpan
from memwal_core.observe.status import RegionStanding, TableStatus
from memwal_core.text import show_bytes, show_count
from memwal_core.vocabulary import Vocabulary, renamed, word


def status(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    storage_option: StorageOptions = None,
    vocabulary: OutputVocabulary = Vocabulary.REGION,
    check: Annotated[
        bool, typer.Option("--check", help="Judge the table instead, for monitoring: signals and damage.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="With --check: look at everything that the doctor looks at.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="How many regions to show; of more, those with most to do.")
    ] = 10,
    json: AsJson = False,
) -> None:
    """Show regions, WAL lag, generations by state and merge lag; with --json of all regions.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again); with --check 0 all is well, 6 a finding warns,
    7 an operator must act now.
    """
    if deep and not check:
        raise InvalidRequestError("only a check looks deep", remedy="add --check")
    table = open_table(uri, storage_option)
    if check:
        check_health(table, vocabulary, deep=deep, json=json)
    found = table.status()
    if json:
        print_json(renamed(found.to_dict(), vocabulary))
    else:
        _show(found, vocabulary, limit)


def _show(found: TableStatus, vocabulary: Vocabulary, limit: int) -> None:
    console = Console(highlight=False)
    console.print(
        f"{found.table_uri}  version {found.version}, {show_count(found.num_rows, 'row')}, "
        f"key ({', '.join(found.primary_key)}), {show_count(len(found.regions), word('region', vocabulary))}",
        markup=False,
        soft_wrap=True,
    )
    for freeze in found.frozen:
        for line in explain(freeze):
            console.print(line, style="bold red", markup=False, soft_wrap=True)
    if not found.regions and not found.damaged:
        console.print(f"no {word('region', vocabulary)} yet: nothing was written through MemWAL", markup=False)
        return
    names = (word("region", vocabulary), "value", "codec", "epoch", "WAL lag", "generations", "merge lag")
    shown, others = _most_to_do(found.regions, limit)
    if shown:
        show_grid(Grid(names, tuple(tuple(_cells(region)) for region in shown)), console)
    if others:
        waiting = sum(region.merge_lag_generations > 0 for region in others)
        replayed = sum(region.wal_lag > 0 for region in others)
        console.print(
            f"{show_count(len(others), word('region', vocabulary))} not shown: {waiting} with a merge lag, {replayed} "
            f"with a WAL lag; --limit {len(found.regions)} shows all",
            markup=False,
            soft_wrap=True,
        )
    for region_id, cause in found.damaged.items():
        console.print(f"damaged: {word('region', vocabulary)} {region_id}: {cause}", markup=False, soft_wrap=True)
    console.print(
        f"waiting for a merge: {show_count(found.merge_lag_generations, 'generation')}, "
        f"{show_bytes(found.merge_lag_bytes)}",
        markup=False,
    )


def _most_to_do(
    regions: Sequence[RegionStanding], limit: int
) -> tuple[Sequence[RegionStanding], Sequence[RegionStanding]]:
    """Return the regions to show, and the others: in their order if all are shown, else those with most to do first."""
    if len(regions) <= limit:
        return regions, ()
    urgent = sorted(regions, key=_to_do, reverse=True)
    return urgent[:limit], urgent[limit:]


def _to_do(region: RegionStanding) -> tuple[bool, int, int, int]:
    is_broken = bool(region.quarantined_generations) or any(span.state is None for span in region.generations)
    return is_broken, region.merge_lag_bytes, region.merge_lag_generations, region.wal_lag


def _cells(region: RegionStanding) -> list[str]:
    value = ", ".join(f"{name}={text}" for name, text in region.value.items()) or "-"
    more = "+" if region.wal_tail_is_lower_bound else ""
    return [
        str(region.region_id),
        value,
        region.codec or "-",
        str(region.writer_epoch),
        f"{region.wal_lag}{more}",
        "  ".join(
            [
                *(_span(span) for span in region.generations),
                *(f"{each} QUARANTINED" for each in region.quarantined_generations),
            ]
        ),
        f"{region.merge_lag_generations} ({show_bytes(region.merge_lag_bytes)})",
    ]


def _span(span: GenerationSpan) -> str:
    numbers = str(span.first) if span.first == span.last else f"{span.first}-{span.last}"
    return f"{numbers} {span.state.value if span.state is not None else 'MISSING'}"
