"""What other pages say about money follows from the counts."""

from __future__ import annotations

from pathlib import Path

from bench.dollars import COUNTED, CYCLES_PER_DAY, Requests

SIZING = (Path(__file__).resolve().parents[3] / "docs" / "sizing.md").read_text()
DAYS = 30


def test_requests_and_money_on_the_page_about_sizes_are_the_counted_ones() -> None:
    """The page had 7 requests of an idle cycle: those that are ours, without Lance's."""
    cycle = COUNTED["idle cycle"]
    month = cycle * CYCLES_PER_DAY * DAYS
    puts = COUNTED["put"] * 86_400 * DAYS

    assert f"An idle cycle of a table makes {cycle.writes + cycle.reads} requests and no write" in SIZING
    for row in (
        f"| one put a second for a month | {puts.writes / 1e6:.1f} million writes | {puts.dollars:.0f} |",
        f"| an idle table, a cycle each 10 minutes, for a month | {_shown(month)} | {month.dollars:.2f} |",
        f"| 1,000 such tables | {_shown(month * 1000)} | {(month * 1000).dollars:.0f} |",
    ):
        assert row in SIZING


def _shown(requests: Requests) -> str:
    total = round(requests.writes + requests.reads, -3)
    return f"{total:,.0f}" if total < 1e6 else f"{total / 1e6:.0f} million"
