"""Results as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rich.table import Table

from bench.growth_fit import Growth, fit_growth
from bench.harness import SECONDS, ArmResult, CaseResult, Comparison, Measure, Spread, spread
from bench.machine import LOAD

FORMAT = 2
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
    rounds = [len(arm.seconds) for result in results for arm in result.arms if arm.error is None]
    over = f"{min(rounds)} rounds" if len(set(rounds)) == 1 else f"{min(rounds, default=0)} or more rounds"
    table = Table(
        title=f"{comparison.name}: {comparison.question}",
        title_justify="left",
        caption=f"Median and (minimum - maximum) over {over}.\n{details}",
        caption_justify="left",
    )
    table.add_column("case")
    table.add_column("arm")
    table.add_column(f"{comparison.measure.shown} per {comparison.operation}", justify="right")
    table.add_column(f"{what_is_measured(comparison.measure)} / {comparison.arms[0].name}", justify="right")
    for measure in comparison.also:
        table.add_column(measure.shown, justify="right")
    for result in results:
        for number, arm in enumerate(result.arms):
            table.add_row(
                result.name if number == 0 else "",
                arm.name,
                *_cells(comparison, arm),
                end_section=number == len(result.arms) - 1,
            )
    for name, growth in growths(comparison, results).items():
        table.caption = (
            f"{table.caption}\n{name}: cost ~ ({comparison.growth})^{growth.fitted:.2f} fitted, "
            f"^{growth.last_step:.2f} between the two largest"
        )
    return table


def growths(comparison: Comparison, results: Sequence[CaseResult]) -> dict[str, Growth]:
    """Fit how the cost of each arm grows over the cases, where that is the question."""
    if comparison.growth is None:
        return {}
    found: dict[str, Growth] = {}
    for arm in comparison.arms:
        points = [
            (result.size, spread(own.seconds).median * result.operations)
            for result in results
            for own in result.arms
            if own.name == arm.name and own.seconds
        ]
        growth = fit_growth([size for size, _ in points], [cost for _, cost in points])
        if growth is not None:
            found[arm.name] = growth
    return found


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When a comparison began.

    Attributes:
        at: Time, ISO 8601.
        load: Load of the machine, by which one can tell whether it was alone.
    """

    at: str
    load: float


def document(
    facts: Mapping[str, str],
    *,
    started: str,
    full: bool,
    results: Mapping[Comparison, Sequence[CaseResult]],
    began: Mapping[Comparison, Circumstances] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return everything that was measured, every sample included, as plain values."""
    return {
        "format": FORMAT,
        "started": started,
        "full": full,
        "machine": dict(facts),
        "comparisons": [_comparison(each, cases, began.get(each)) for each, cases in results.items()],
    }


def updated(before: Mapping[str, Any], now: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Return results of a run, and beside them the comparisons that only an earlier run has.

    Args:
        before: The earlier document.
        now: The later document.
        order: Names of all comparisons, in the order of the page.

    Returns:
        The facts of the earlier run; each later comparison says what was not the same, since ratios hold by themselves.

    Raises:
        ValueError: The earlier run was of the other form.
    """
    if before["full"] != now["full"]:
        raise ValueError("the results to update are of the other form; measure everything anew")
    differs = {
        name: fact for name, fact in now["machine"].items() if name != LOAD and before["machine"].get(name) != fact
    }
    later = [{**each, "differs": differs} for each in now["comparisons"]]
    found = {each["name"]: each for each in (*before["comparisons"], *later)}
    anew = {each["name"] for each in now["comparisons"]}
    left_out = [case for case in before.get("left_out", ()) if case.partition(":")[0] not in anew]
    return {
        **before,
        "minutes": round(before.get("minutes", 0) + now.get("minutes", 0), 1),
        "left_out": [*left_out, *(case for case in now.get("left_out", ()) if case not in left_out)],
        "comparisons": [found[name] for name in order if name in found],
    }


def _comparison(comparison: Comparison, cases: Sequence[CaseResult], began: Circumstances | None) -> dict[str, Any]:
    return {
        "began": {"at": began.at, "load": began.load} if began is not None else None,
        "name": comparison.name,
        "question": comparison.question,
        "operation": comparison.operation,
        "unit": f"{comparison.measure.name} per {comparison.operation}",
        "measure": _measure(comparison.measure),
        "also": [_measure(measure) for measure in comparison.also],
        "reference": comparison.arms[0].name,
        "arms": {arm.name: arm.detail for arm in comparison.arms},
        "growth_of": comparison.growth,
        "growth": {name: growth.to_dict() for name, growth in growths(comparison, cases).items()},
        "cases": [_case(result) for result in cases],
    }


def _measure(measure: Measure) -> dict[str, Any]:
    return {
        "name": measure.name,
        "what": what_is_measured(measure),
        "shown": measure.shown,
        "scale": measure.scale,
    }


def _case(result: CaseResult) -> dict[str, Any]:
    arms = [_arm(arm) for arm in result.arms]
    return {"name": result.name, "operations": result.operations, "size": result.size, "arms": arms}


def _arm(arm: ArmResult) -> dict[str, Any]:
    if arm.error is not None:
        return {"name": arm.name, "error": arm.error}
    return {
        "name": arm.name,
        "seconds": list(arm.seconds),
        "ratios": list(arm.ratios),
        "also": {name: list(values) for name, values in arm.also.items()},
        "seconds_spread": _spread(arm.seconds),
        "ratio_spread": _spread(arm.ratios),
    }


def _spread(samples: Sequence[float]) -> dict[str, float] | None:
    if not samples:
        return None
    found = spread(samples)
    return {"median": found.median, "low": found.low, "high": found.high}


def what_is_measured(measure: Measure) -> str:
    """Return what a ratio of this measure is a ratio of."""
    return "time" if measure is SECONDS else measure.name


def _cells(comparison: Comparison, arm: ArmResult) -> list[str]:
    if arm.error is not None:
        return [f"failed: {arm.error}", ""] + [""] * len(comparison.also)
    ratios = _shown(spread(arm.ratios)) if arm.ratios else ""
    further = [
        _shown(spread([sample * measure.scale for sample in arm.also[measure.name]]))
        if measure.name in arm.also
        else ""
        for measure in comparison.also
    ]
    return [_shown(spread([sample * comparison.measure.scale for sample in arm.seconds])), ratios, *further]


def _shown(values: Spread) -> str:
    return f"{values.median:.2f} ({values.low:.2f} - {values.high:.2f})"
