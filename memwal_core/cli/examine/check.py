"""`memwal status --check`: every signal against its thresholds, and what is damaged."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

from memwal_core.cli.options import print_json
from memwal_core.cli.show import show_findings, show_grid
from memwal_core.jobs.view import Grid
from memwal_core.metrics import INSTRUMENTS
from memwal_core.table import Table
from memwal_core.text import show_number
from memwal_core.vocabulary import Vocabulary, renamed

if TYPE_CHECKING:
    from memwal_core.observe.health import Health
    from memwal_core.observe.signals import JudgedSignal


def check_health(table: Table, vocabulary: Vocabulary, *, deep: bool, json: bool) -> None:
    """Print every signal and finding, the worst first, and end the process with the worst one's code.

    Raises:
        SystemExit: Always: 0 all is well, 6 something warns, 7 an operator must act now.
    """
    from memwal_core.observe.health import record_health  # noqa: PLC0415 - most commands start without it

    health = table.doctor() if deep else table.health()
    record_health(INSTRUMENTS, health)
    if json:
        print_json(renamed(health.to_dict(), vocabulary))
    else:
        _show(health, vocabulary)
    sys.exit(health.level.exit_code)


def _show(health: Health, vocabulary: Vocabulary) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{health.table_uri}: {health.level.value}", markup=False)
    names = ("signal", "level", "value", "warn", "page", "where", "runbook")
    show_grid(Grid(names, tuple(tuple(_cells(each)) for each in health.signals)), console)
    show_findings(console, health.findings, vocabulary)


def _cells(judged: JudgedSignal) -> list[str]:
    from memwal_core.observe.signals import SIGNALS  # noqa: PLC0415 - most commands start without it

    facts = SIGNALS[judged.signal]
    value = "-" if judged.value is None else f"{show_number(judged.value)} {facts.unit}"
    return [
        judged.signal.value,
        judged.level.value,
        value,
        show_number(judged.warn),
        show_number(judged.page),
        judged.subject,
        facts.page,
    ]
