"""What is said of each table of the fleet: by the watch, in its metrics, and by Airflow's page, to people."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.request import urlopen

from testkit.fleet.tables import NOT_EXAMINED

_SAMPLE = re.compile(r'^(?P<name>\w+)\{memwal_table="(?P<table>[^"]*)"(?P<more>[^}]*)\} (?P<value>\S+)$', re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ROW = re.compile(r'<li class="row (?P<state>\w+) [^"]*" data-name="(?P<table>[^"]*)">(?P<row>.*?)</li>', re.DOTALL)
_SENTENCE = re.compile(r"<p>(.*?)</p>", re.DOTALL)
_FINE = "fine"
_AWAITED = "Being read"
_PATIENCE_S = 120


@dataclass
class Said:
    """When something was said of a table: seconds since the beginning.

    Attributes:
        times: How often.
        words: The last time.
    """

    first: float
    last: float
    times: int = 0
    words: str = ""

    def __str__(self) -> str:
        """Return when, and in which words."""
        return f"{self.times} times from {self.first:.0f} to {self.last:.0f} s" + (
            f": {self.words}" if self.words else ""
        )


@dataclass
class Watching:
    """All that was said of a fleet.

    Args:
        port: Of the watch.
        page: Returns the page that lists all tables.

    Attributes:
        by_watch: Table -> finding, signal or ``not examined`` -> when.
        on_page: Table -> state, unless it is fine -> when.
        looks: How often each of both answered.
    """

    port: int
    page: Callable[[], str]
    by_watch: dict[str, dict[str, Said]] = field(default_factory=lambda: defaultdict(dict))
    on_page: dict[str, dict[str, Said]] = field(default_factory=lambda: defaultdict(dict))
    looks: dict[str, int] = field(default_factory=lambda: {"watch": 0, "page": 0})

    def ask_watch(self, now: float) -> None:
        """Ask the watch once; one that does not answer is asked again the next time."""
        with suppress(OSError):
            text, why = self._answer("metrics"), json.loads(self._answer("healthz"))["not_examined"]
            self.looks["watch"] += 1
            for table, what in _problems(text):
                _note(self.by_watch[table], what, now, why.get(table, "") if what == NOT_EXAMINED else "")

    def read_page(self, now: float) -> None:
        """Read the page once; one that does not answer is read again the next time."""
        with suppress(OSError):
            text = self.page()
            self.looks["page"] += 1
            for row in _ROW.finditer(text):
                found = _SENTENCE.search(row["row"])
                sentence = html.unescape(re.sub(r"<[^>]*>", "", found[1])) if found else ""
                if row["state"] != _FINE and not sentence.startswith(_AWAITED):
                    _note(self.on_page[row["table"]], row["state"], now, sentence)

    def _answer(self, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=_PATIENCE_S) as answer:
            return str(answer.read().decode())


def _note(said: dict[str, Said], what: str, now: float, words: str) -> None:
    each = said.setdefault(what, Said(now, now))
    each.last, each.times, each.words = now, each.times + 1, words


def _problems(text: str) -> set[tuple[str, str]]:
    found = set()
    for sample in _SAMPLE.finditer(text):
        table, labels, value = sample["table"], dict(_LABEL.findall(sample["more"])), float(sample["value"])
        if sample["name"] == "memwal_finding":
            found.add((table, labels["finding"]))
        elif sample["name"] == "memwal_signal_level" and value > 0:
            found.add((table, labels["memwal_signal"]))
        elif sample["name"] == "memwal_table_examined" and value == 0:
            found.add((table, NOT_EXAMINED))
    return found
