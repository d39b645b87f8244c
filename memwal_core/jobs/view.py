"""How reports appear to people: plain lines and grids that a terminal, a log or a page can show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells under a heading for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ReportView:
    """One report.

    Attributes:
        notes: Lines below them.
    """

    headline: str
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterable[str]:
        """Return everything as lines, for logs; cells are separated by two spaces, empty ones left out."""
        yield self.headline
        for grid in self.grids:
            for row in grid.rows:
                yield "  ".join(f"{name}: {cell}" for name, cell in zip(grid.columns, row, strict=True) if cell)
        yield from self.notes


def show_words(value: str) -> str:
    """Return the value of an enumeration as words."""
    return value.replace("_", " ")
