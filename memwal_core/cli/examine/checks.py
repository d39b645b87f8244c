"""`memwal checks`: what the data-quality checks found, what they hold back, and letting it pass."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_grid
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid
from memwal_core.quality.model import Result, Stage
from memwal_core.quality.table import QualityTable
from memwal_core.region.quarantine import Quarantined
from memwal_core.text import whole_number


@may_find_nothing
def checks(
    uri: TableUri,
    release: Annotated[
        list[str] | None,
        typer.Option(
            "--release",
            help="Let a held generation pass: the next merge takes it on as it is. Repeatable.",
            metavar="REGION:GENERATION",
        ),
    ] = None,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Show the newest results of the data-quality checks and what they hold back from the merge.

    `memwal quality`, `spark-submit jobs/quality.py` and the DAG `memwal_quality` run the checks.
    Exit codes: 0 nothing failed and nothing is held, 2 bad input, 3 no check ever ran and nothing was released, 5 a
    check failed or something is held.
    """
    named = [_parse_generation(text) for text in release or ()]
    opened = open_table(uri, storage_option).opened
    checked = QualityTable(opened.base, opened.manifests, opened.settings)
    released = [_released(opened, checked, region_id, generation) for region_id, generation in named]
    held = checked.quarantine.load()
    newest = {stage: checked.newest(stage) for stage in Stage}
    outcome = _outcome(released, held, newest, opened)
    if json:
        print_json(
            {
                "table_uri": checked.table.uri,
                "outcome": outcome.value,
                "released": [hold.to_dict() for hold in released],
                "quarantined": [hold.to_dict() for hold in held],
                "newest": {stage.value: document for stage, document in newest.items()},
            }
        )
    else:
        _show(released, held, newest)
    sys.exit(outcome.exit_code)


def _released(opened: OpenTable, checked: QualityTable, region_id: RegionId, generation: int) -> Quarantined:
    """Release a generation, and note it in the ledger once it has happened: a refused name is nobody's failed run."""
    hold = checked.release(region_id, generation)
    with opened.ledger.run(opened.new_run(JobKey("quality"), opened.new_holder())) as run:
        run.verdict = f"released region {region_id} generation {generation}"
        run.facts.update({"region": str(region_id), "generation": generation})
    return hold


def _parse_generation(text: str) -> tuple[RegionId, int]:
    region, _, stated = text.partition(":")
    number = whole_number(stated)
    if number is None:
        raise InvalidRequestError(
            "a generation is named by its region and its number", remedy="write REGION:GENERATION", text=text
        )
    return parse_region_id(region), number


def _outcome(
    released: Sequence[Quarantined],
    held: Sequence[Quarantined],
    newest: Mapping[Stage, Mapping[str, Any] | None],
    opened: OpenTable,
) -> JobOutcome:
    from memwal_core.observe.signals.jobs import failures_that_stand  # noqa: PLC0415 - most commands start without it

    # What failed before a merge is over when nothing is held any more; what failed after it is not.
    after = newest[Stage.AFTER]
    if held or (after is not None and failures_that_stand(after, opened.freezes)):
        return JobOutcome.BLOCKED
    return JobOutcome.DONE if released or any(newest.values()) else JobOutcome.NOTHING_TO_DO


def _show(
    released: Sequence[Quarantined], held: Sequence[Quarantined], newest: Mapping[Stage, Mapping[str, Any] | None]
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for hold in released:
        console.print(f"released: region {hold.region_id} generation {hold.generation}", markup=False)
    for stage, document in newest.items():
        if document is None:
            console.print(f"{stage.value} a merge: never checked", markup=False)
            continue
        console.print(
            f"{stage.value} a merge: {document.get('outcome')} on version {document.get('version')}, "
            f"{document.get('ended_at')}",
            markup=False,
        )
        results = document.get("results", ())
        rows = tuple((each["check"], each["result"], each["subject"], _evidence(each)) for each in results)
        if rows:
            show_grid(Grid(("check", "result", "subject", "evidence"), rows), Console(highlight=False))
    for hold in held:
        reasons = "; ".join(hold.reasons)
        console.print(f"quarantined: region {hold.region_id} generation {hold.generation}: {reasons}", markup=False)


def _evidence(result: Mapping[str, str]) -> str:
    return result["evidence"] if result["result"] != Result.PASSED.value else ""
