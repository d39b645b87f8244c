"""Metric names: every one is documented, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

from memwal_core import metrics
from memwal_core.writer import stats

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
NAME = re.compile(r"memwal\.[a-z_.]+")


def names_of(module: object) -> set[str]:
    return {
        value
        for constant, value in vars(module).items()
        if constant.isupper() and isinstance(value, str) and value.startswith("memwal.") and "LABEL" not in constant
    }


def documented() -> dict[str, str]:
    return dict(re.findall(r"^\| `(memwal\.[\w.]+)` \| (\w+) \|", PAGE, re.M))


def test_every_metric_is_documented_and_nothing_else() -> None:
    assert set(documented()) == names_of(metrics) | names_of(stats)


def test_documented_kinds_are_those_of_the_instruments() -> None:
    kinds = {
        **dict.fromkeys((*metrics.COUNTERS, *stats.COUNTERS), "counter"),
        **dict.fromkeys((*metrics.HISTOGRAMS, *stats.HISTOGRAMS), "histogram"),
        **dict.fromkeys((*metrics.GAUGES, *stats.GAUGES), "gauge"),
    }

    assert documented() == kinds


def test_labels_are_documented() -> None:
    labels = {value for name, value in vars(metrics).items() if name.endswith("_LABEL")}

    assert {label for label in labels if f"`{label}`" not in PAGE} == set()
