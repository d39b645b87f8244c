"""``docs/benchmarks.md`` and its charts, from the JSON of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.aims import LINEAR, judge
from bench.charts import Bar, bar_chart, line_chart
from bench.dollars import AT_ONCE, INTRODUCTION, WORKLOAD, operation_rows, way_rows, ways
from bench.explanations import GROWTH
from bench.harness import Spread

CHARTS = "benchmarks"
"""Directory of charts and results, beside the page."""

_Values = Mapping[str, Any]

_HEAD = """# Benchmarks

Generated from `docs/benchmarks/full.json` by `python -m bench report`; `make bench FULL=1` measures anew
(`NAMES="loop puts"` only these, kept beside the others) and `make bench` runs a small version in a few minutes. What
counts are the **ratios**: all ways of a comparison ran in turn, in the same rounds, on the same data, and each proved
afterwards that its work was done. Absolute numbers are those of one machine on one day and are labelled so. Every cell
is the median with (minimum - maximum) over the rounds; below 1 is less than the first way of the
comparison.
"""


def write_page(results: _Values, page: Path, charts: Path) -> list[Path]:
    """Write the page and its charts.

    Args:
        results: The JSON document of a run.
        page: Where the page goes.
        charts: Where the charts go; files of former charts are removed.

    Returns:
        All files written, the page first.
    """
    drawn = draw(results)
    charts.mkdir(parents=True, exist_ok=True)
    for former in charts.glob("*.svg"):
        former.unlink()
    for name, text in drawn.items():
        (charts / name).write_text(text)
    page.write_text(render(results))
    return [page, *(charts / name for name in drawn)]


def draw(results: _Values) -> dict[str, str]:
    """Return the charts as SVG by file name."""
    found: dict[str, str] = {}
    for comparison in results["comparisons"]:
        if comparison["name"] == "loop":
            for case in comparison["cases"]:
                bars = [
                    Bar(arm["name"], arm["ratio_spread"]["median"], _spread(arm["ratio_spread"]))
                    for arm in case["arms"]
                    if arm.get("ratio_spread")
                ]
                if bars:
                    found["loop.svg"] = bar_chart(f"Whole loop, time / {comparison['reference']}: {case['name']}", bars)
    for axis, lines in _growth_lines(results).items():
        found[f"growth-{axis.replace(' ', '-')}.svg"] = line_chart(f"Cost as {axis} grow", axis, lines)
    return found


def _growth_lines(results: _Values) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return cost against size by axis and operation, for operations measured at two sizes or more."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for comparison in results["comparisons"]:
        for arm in comparison["growth"]:
            if comparison["arms"].keys() == {arm} or arm == "memwal":
                found.setdefault(comparison["growth_of"], {})[comparison["name"]] = [
                    (case["size"], own["seconds_spread"]["median"] * case["operations"])
                    for case in comparison["cases"]
                    for own in case["arms"]
                    if own["name"] == arm and own.get("seconds_spread")
                ]
    return found


def render(results: _Values) -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, *_origin(results), *_aims(results), *_growth(results), *_dollars()]
    parts.append("## All comparisons\n")
    for comparison in results["comparisons"]:
        parts += _comparison(comparison)
    return "\n".join(parts).rstrip() + "\n"


def _origin(results: _Values) -> Iterator[str]:
    kind = "full" if results["full"] else "small"
    yield f"Measured {results['started']}, {kind} version, {results.get('minutes', '?')} minutes.\n"
    yield _table(["Machine", ""], [[name, value] for name, value in results["machine"].items()])
    if results.get("left_out"):
        yield f"Left out for lack of time: {', '.join(results['left_out'])}.\n"


def _aims(results: _Values) -> Iterator[str]:
    yield "## Aims\n"
    judged = judge(results)
    rows = [
        [each.aim.text, each.case, _number(each.aim.limit), _spread(_plain(each.ratio)), each.verdict]
        for each in judged
    ]
    yield _table(["Aim", "Case", "At most", "Measured", "Verdict"], rows)
    missed = {each.aim.text: each.aim.obstacle for each in judged if each.verdict.startswith("missed")}
    if missed:
        yield "What stands in the way of those that were missed:\n"
        yield "\n".join(f"- *{text}*: {obstacle}" for text, obstacle in missed.items()) + "\n"
    if any(comparison["name"] == "loop" for comparison in results["comparisons"]):
        yield f"![Whole loop]({CHARTS}/loop.svg)\n"


def _growth(results: _Values) -> Iterator[str]:
    rows, steep = [], []
    for comparison in results["comparisons"]:
        for arm, growth in comparison["growth"].items():
            sizes = f"{comparison['cases'][0]['size']:,.0f} to {comparison['cases'][-1]['size']:,.0f}"
            is_steep = growth["last_step"] > LINEAR
            verdict = "above linear" if is_steep else "linear or better"
            rows.append(
                [
                    comparison["name"],
                    arm,
                    f"{comparison['growth_of']}, {sizes}",
                    f"{growth['fitted']:.2f}",
                    f"{growth['last_step']:.2f}",
                    verdict,
                ]
            )
            if is_steep:
                steep.append(f"- `{comparison['name']}`: {GROWTH.get(comparison['name'], 'not explained yet')}")
    if not rows:
        return
    yield "## Growth\n"
    yield (
        "Cost ~ size^k: k fitted over all sizes, and between the two largest alone, where fixed costs matter least. "
        f"Up to {LINEAR} counts as linear.\n"
    )
    yield _table(["Comparison", "Way", "What grows", "k fitted", "k of the last step", "Verdict"], rows)
    if steep:
        yield "\n".join(["Above linear, and why:\n", *steep]) + "\n"
    for name in sorted(draw(results)):
        if name.startswith("growth-"):
            yield f"![{name.removesuffix('.svg')}]({CHARTS}/{name})\n"


def _dollars() -> Iterator[str]:
    yield "## Dollars\n"
    yield INTRODUCTION
    yield _table(["Operation", "PUT, POST, LIST", "GET, HEAD", "Dollars per million of them"], operation_rows())
    yield WORKLOAD
    head = ["Format", "PUT, POST, LIST", "GET, HEAD", "Dollars per million rows", "Dollars per idle day"]
    yield _table(head, way_rows())
    yield "\n".join(f"- {way.name}: {way.why_rows} Idle: {way.why_idle}" for way in ways()) + "\n"
    yield AT_ONCE


def _comparison(comparison: _Values) -> Iterator[str]:
    measure, also = comparison["measure"], comparison["also"]
    yield f"### {comparison['name']}\n"
    began = comparison.get("began")
    when = f" Begun {began['at']} at a load of {began['load']}." if began else ""
    differs = ", ".join(f"{name} {fact}" for name, fact in comparison.get("differs", {}).items())
    when += f" Not as above: {differs}." if differs else ""
    yield f"{_sentence(comparison['question'])}{when}\n"
    head = ["Case", "Way", f"{measure['what']} / {comparison['reference']}"]
    head.append(f"{measure['shown']} per {comparison['operation']}, this machine")
    head += [f"{each['shown']}, this machine" for each in also]
    rows = []
    for case in comparison["cases"]:
        for number, arm in enumerate(case["arms"]):
            rows.append([case["name"] if number == 0 else "", arm["name"], *_cells(comparison, arm)])
    yield _table(head, rows)
    yield "\n".join(f"- {name}: {detail}" for name, detail in comparison["arms"].items()) + "\n"


def _cells(comparison: _Values, arm: _Values) -> list[str]:
    also = comparison["also"]
    if "error" in arm:
        return [f"failed: {arm['error'].splitlines()[0][:120]}", *([""] * (1 + len(also)))]
    scale = comparison["measure"]["scale"]
    cells = [_spread(arm["ratio_spread"]), _spread(arm["seconds_spread"], scale)]
    for each in also:
        values = arm["also"].get(each["name"])
        cells.append(_spread(_of(values), each["scale"]) if values else "")
    return cells


def _of(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {"median": median, "low": ordered[0], "high": ordered[-1]}


def _plain(found: Spread | None) -> dict[str, float] | None:
    return None if found is None else {"median": found.median, "low": found.low, "high": found.high}


def _spread(values: Mapping[str, float] | None, scale: float = 1.0) -> str:
    if values is None:
        return ""
    median, low, high = (_number(values[name] * scale) for name in ("median", "low", "high"))
    return median if low == high else f"{median} ({low} - {high})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
