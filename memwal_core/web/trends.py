"""The course of a table, from what its ledger remembers: numbers over time, and how they are drawn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from memwal_core.coordination.ledger import RunRecord
from memwal_core.jobs.merge.report import MERGED_BYTES_FACT
from memwal_core.web.show import age, size

WIDTH, HEIGHT = 240.0, 56.0
_BARS = 24
_SHORTEST = timedelta(hours=1)
_LONGEST = timedelta(days=7)
_THINNEST = 3.0


@dataclass(frozen=True, slots=True)
class Point:
    """One value.

    Attributes:
        at: When, in UTC.
    """

    at: datetime
    value: float
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of a chart."""

    x: float
    y: float
    width: float
    height: float
    label: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """One small chart.

    Attributes:
        newest: The last value, for people.
        begins: How long ago it begins, for people.
        line: Corners of a line, as SVG takes them; empty if there are bars.
        summary: All of it as one sentence, for who does not see it.
    """

    title: str
    newest: str
    highest: str
    begins: str
    bars: tuple[Bar, ...] = ()
    line: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Now:
    """What the charts end with.

    Attributes:
        at: When, in UTC.
        unindexed_rows: Rows that no index covers, of the index that has most of them; None if there is no index.
    """

    at: datetime
    waiting_bytes: int
    waiting_generations: int
    unindexed_rows: int | None
    version: int


def draw_trends(runs: Sequence[RunRecord], now: Now) -> tuple[Chart, ...]:
    """Draw what the ledger knows of a table; nothing if it remembers no run.

    Args:
        runs: The remembered runs of all jobs, the oldest first.
        now: What is there now.
    """
    ended = [run for run in runs if run.ended is not None and run.ended <= now.at]
    if not ended:
        return ()
    span = min(max(now.at - ended[0].started, _SHORTEST), _LONGEST)
    ended = [run for run in ended if run.started >= now.at - span]
    merges, catchups = ([run for run in ended if run.key.job == job] for job in ("merge", "catchup"))
    frame = _Frame(now.at, span)
    waiting = [*_facts(merges, MERGED_BYTES_FACT), Point(now.at, now.waiting_bytes)]
    lag = [*_facts(merges, "generations"), Point(now.at, now.waiting_generations)]
    versions = [*_facts(ended, "version"), Point(now.at, now.version)]
    charts = [
        frame.bars("Rows merged per hour", frame.per_hour(_facts(merges, "rows")), _number),
        frame.spikes("Bytes that waited at each merge, and now", waiting, size),
        frame.spikes("Flushed MemTables that waited, and now", lag, _number),
        frame.line("Version of the base table", versions, _number),
        frame.spikes("Time of each run", [_took(run) for run in ended if run.key.job != "cycle"], age),
    ]
    if now.unindexed_rows is not None:
        indexed = [*_facts(catchups, "rows"), Point(now.at, now.unindexed_rows)]
        charts.insert(4, frame.spikes("Rows without index at each catch-up, and now", indexed, _number))
    return tuple(charts)


@dataclass(frozen=True, slots=True)
class _Frame:
    now: datetime
    span: timedelta

    @property
    def begins(self) -> str:
        return age(self.span.total_seconds())

    def x(self, at: datetime) -> float:
        return round(WIDTH * max(0.0, 1 - (self.now - at) / self.span), 1)

    def per_hour(self, points: Iterable[Point]) -> list[Point]:
        """Add up values in equal parts of the time, and return each part's rate at its beginning."""
        part = self.span / _BARS
        sums = [0.0] * _BARS
        for each in points:
            sums[min(_BARS - 1, int((each.at - (self.now - self.span)) / part))] += each.value
        hours = part.total_seconds() / 3600
        return [Point(self.now - self.span + part * number, total / hours) for number, total in enumerate(sums)]

    def bars(self, title: str, points: Sequence[Point], show: Callable[[float], str]) -> Chart:
        return self._drawn(title, points, show, WIDTH / _BARS - 2)

    def spikes(self, title: str, points: Sequence[Point], show: Callable[[float], str]) -> Chart:
        return self._drawn(title, points, show, _THINNEST)

    def _drawn(self, title: str, points: Sequence[Point], show: Callable[[float], str], width: float) -> Chart:
        top = max((each.value for each in points), default=0.0) or 1.0
        drawn = [each for each in points if each.value > 0]
        heights = [max(1.5, (HEIGHT - 2) * each.value / top) for each in drawn]
        bars = tuple(
            Bar(
                min(self.x(each.at), WIDTH - width),
                round(HEIGHT - height, 1),
                round(width, 1),
                round(height, 1),
                f"{show(each.value)} at {each.at:%m-%d %H:%M} UTC",
                each.is_bad,
            )
            for each, height in zip(drawn, heights, strict=True)
        )
        return self._chart(title, points, show, bars=bars)

    def line(self, title: str, points: Sequence[Point], show: Callable[[float], str]) -> Chart:
        ordered = sorted(points, key=lambda each: each.at)
        low, top = min(each.value for each in ordered), max(each.value for each in ordered)
        # Versions only grow, and from far above nothing: the line begins at the lowest one.
        low = low if low > top / 2 else 0.0
        reach = (top - low) or 1.0
        corners = [
            (self.x(each.at), round(HEIGHT - 3 - (HEIGHT - 6) * (each.value - low) / reach, 1)) for each in ordered
        ]
        # A value stays until the next one is known.
        steps = [corners[0], *(each for (_, y), (x, z) in pairwise(corners) for each in ((x, y), (x, z)))]
        return self._chart(title, ordered, show, line=" ".join(f"{x},{y}" for x, y in steps))

    def _chart(
        self,
        title: str,
        points: Sequence[Point],
        show: Callable[[float], str],
        *,
        bars: tuple[Bar, ...] = (),
        line: str = "",
    ) -> Chart:
        newest = show(points[-1].value) if points else "none"
        highest = show(max(each.value for each in points)) if points else "none"
        bad = sum(each.is_bad for each in points)
        failed = f", {bad} failed" if bad else ""
        summary = f"{title}, last {self.begins}: {newest} at the end, {highest} at most{failed}"
        return Chart(title, newest, f"{highest}{failed}", self.begins, bars, line, summary)


def _facts(runs: Iterable[RunRecord], name: str) -> Iterator[Point]:
    for run in runs:
        value = run.facts.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and run.outcome.is_success:
            yield Point(run.started, float(value))


def _took(run: RunRecord) -> Point:
    seconds = (run.ended - run.started).total_seconds() if run.ended is not None else 0.0
    return Point(run.started, max(0.0, seconds), run.outcome.is_failure)


def _number(value: float) -> str:
    return f"{value:,.0f}"
