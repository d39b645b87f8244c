"""`memwal why`: for one region, why each job did or did not act."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from memwal_core.cli.options import AsJson, OutputVocabulary, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_grid
from memwal_core.ids import parse_region_id
from memwal_core.jobs.view import Grid
from memwal_core.vocabulary import Vocabulary, renamed


def why(
    uri: TableUri,
    region: Annotated[str, typer.Argument(help="The region.", metavar="REGION", show_default=False)],
    storage_option: StorageOptions = None,
    vocabulary: OutputVocabulary = Vocabulary.REGION,
    json: AsJson = False,
) -> None:
    """Show for each job whether it would act on the region now, and why.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    answer = open_table(uri, storage_option).why(parse_region_id(region))
    if json:
        print_json(renamed(answer.to_dict(), vocabulary))
        return
    rows = tuple((each.job, "yes" if each.acts else "no", each.reason) for each in answer.verdicts)
    show_grid(Grid(("job", "acts", "why"), rows), Console(highlight=False))
