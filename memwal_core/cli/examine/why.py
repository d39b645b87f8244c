"""`memwal why`: for one region, why each job did or did not act."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from memwal_core.cli.options import AsJson, OutputVocabulary, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_grid
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.jobs.view import Grid
from memwal_core.table import Table
from memwal_core.vocabulary import Vocabulary, renamed

_LISTED = 10
"""How many regions an error names."""


def why(
    uri: TableUri,
    region: Annotated[
        str,
        typer.Argument(
            help="The region, or how its id begins. May be left out where there is only one.",
            metavar="[REGION]",
            show_default=False,
        ),
    ] = "",
    storage_option: StorageOptions = None,
    vocabulary: OutputVocabulary = Vocabulary.REGION,
    json: AsJson = False,
) -> None:
    """Show for each job whether it would act on the region now, and why.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    table = open_table(uri, storage_option)
    answer = table.why(_chosen(table, region))
    if json:
        print_json(renamed(answer.to_dict(), vocabulary))
        return
    rows = tuple((each.job, "yes" if each.acts else "no", each.reason) for each in answer.verdicts)
    show_grid(Grid(("job", "acts", "why"), rows), Console(highlight=False))


def _chosen(table: Table, text: str) -> RegionId:
    """Return the region whose id begins with a text; a whole id need not be known."""
    if len(text) == len(str(UUID(int=0))):
        return parse_region_id(text)
    fitting = [each for each in table.opened.manifests.region_ids() if str(each).startswith(text.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if text:
        what = "the ids of several regions begin with the text" if fitting else "no region's id begins with the text"
    else:
        what = "the table has several regions" if fitting else "the table has no regions"
    raise InvalidRequestError(
        what,
        remedy="name one that `memwal status` shows, by as much of its id as tells it from the others",
        table=table.uri,
        text=text,
        regions=len(fitting),
        first=[str(each) for each in sorted(fitting)[:_LISTED]],
    )
