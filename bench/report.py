"""Results as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench.harness import SECONDS, CaseResult, Comparison, Spread, spread

FORMAT = 1
"""Version of the JSON document."""


def facts_table(facts: Mapping[str, str]) -> Table:
    """Show the facts about the machine."""
    table = Table(title="Machine", title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def result_table(comparison: Comparison, results: Sequence[CaseResult]) -> Table:
    """Show a comparison: medians, with minimum and maximum over the rounds."""
    details = "\n".join(f"{arm.name}: {arm.detail}" for arm in comparison.arms)
    table = Table(
        title=f"{comparison.name}: {comparison.question}",
        title_justify="left",
        caption=f"Median and (minimum - maximum) over {len(results[0].arms[0].seconds)} rounds.\n{details}",
        caption_justify="left",
    )
    table.add_column("case")
    table.add_column("arm")
    table.add_column(f"{comparison.measure.shown} per {comparison.operation}", justify="right")
    table.add_column(f"{_what(comparison)} / {comparison.arms[0].name}", justify="right")
    for result in results:
        for number, arm in enumerate(result.arms):
            table.add_row(
                result.name if number == 0 else "",
                arm.name,
                _shown(spread([sample * comparison.measure.scale for sample in arm.seconds])),
                _shown(spread(arm.ratios)),
                end_section=number == len(result.arms) - 1,
            )
    return table


def document(
    facts: Mapping[str, str], *, started: str, full: bool, results: Mapping[Comparison, Sequence[CaseResult]]
) -> dict[str, Any]:
    """Return everything that was measured, every sample included, as plain values."""
    return {
        "format": FORMAT,
        "started": started,
        "full": full,
        "machine": dict(facts),
        "comparisons": [
            {
                "name": comparison.name,
                "question": comparison.question,
                "unit": f"{comparison.measure.name} per {comparison.operation}",
                "reference": comparison.arms[0].name,
                "arms": {arm.name: arm.detail for arm in comparison.arms},
                "cases": [_case(result) for result in cases],
            }
            for comparison, cases in results.items()
        ],
    }


def _case(result: CaseResult) -> dict[str, Any]:
    arms = [
        asdict(arm) | {"seconds_spread": asdict(spread(arm.seconds)), "ratio_spread": asdict(spread(arm.ratios))}
        for arm in result.arms
    ]
    return {"name": result.name, "operations": result.operations, "arms": arms}


def _what(comparison: Comparison) -> str:
    return "time" if comparison.measure is SECONDS else comparison.measure.name


def _shown(values: Spread) -> str:
    return f"{values.median:.2f} ({values.low:.2f} - {values.high:.2f})"
