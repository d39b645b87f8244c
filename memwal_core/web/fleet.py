"""All tables as the overview lists them, the worst first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memwal_core.coordination.ledger import RunRecord
from memwal_core.observe.health import Health
from memwal_core.registry import BrokenEntry
from memwal_core.web.advice import Advice, FleetState, advise, advise_unknown
from memwal_core.web.board import LastLook
from memwal_core.web.show import age, as_sentence


@dataclass(frozen=True, slots=True)
class TableSummary:
    """What the overview keeps of a table: it has hundreds, and what is seen of each would take gigabytes.

    Attributes:
        advice: What to tell of it, and what to do.
        score: Of its health.
        rows: Of the base table; None if the MemWAL index cannot be read.
        waiting_bytes: Of flushed MemTables that wait for a merge; None if none does.
    """

    advice: Advice
    score: int
    rows: int | None = None
    waiting_bytes: int | None = None

    @classmethod
    def of(cls, health: Health, runs: Sequence[RunRecord]) -> TableSummary:
        """Return the summary of what was found and measured, and of the remembered runs, the newest last."""
        status = health.status
        return cls(
            advise(health, runs),
            health.score,
            rows=status.num_rows if status is not None else None,
            waiting_bytes=status.merge_lag_bytes if status is not None and status.merge_lag_generations else None,
        )


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One table of the overview.

    Attributes:
        advice: What to tell of it, and what to do.
        seen: How it was last; None if that was never read.
        age_s: Seconds since then.
        is_awaited: Whether it is being read for the first time.
        has_page: Whether it can be opened; an entry that is not understood cannot.
    """

    name: str
    uri: str
    advice: Advice
    seen: TableSummary | None = None
    age_s: float = 0.0
    is_awaited: bool = False
    has_page: bool = True

    @property
    def order(self) -> tuple[int, int, str]:
        """Sorts the worst first: nothing is worse than not to know; what is only awaited comes last."""
        if self.is_awaited:
            return (1, 0, self.name)
        known = self.advice.state is not FleetState.UNKNOWN and self.seen is not None
        return (0, self.seen.score if known and self.seen is not None else -1, self.name)


AWAITED = Advice(FleetState.UNKNOWN, "unknown", "Being read; nothing is known of it yet.")


def list_fleet(sights: Iterable[LastLook[TableSummary]], broken: Sequence[BrokenEntry]) -> tuple[FleetRow, ...]:
    """Return the rows of the overview, the worst first."""
    rows = [_row(sight) for sight in sights]
    rows += [FleetRow(each.name, "", _advise_broken(each), has_page=False) for each in broken]
    return tuple(sorted(rows, key=lambda row: row.order))


def count_states(rows: Iterable[FleetRow]) -> Mapping[FleetState, int]:
    """Return how many tables stand how."""
    found = Counter(row.advice.state for row in rows)
    return {state: found[state] for state in FleetState}


def advise_sight(sight: LastLook[TableSummary]) -> Advice:
    """Say what matters of a table: as it is, as it last was, or why nothing is known."""
    known = sight.view.advice if sight.view is not None else None
    if sight.error is None:
        return known if known is not None else AWAITED
    unknown = advise_unknown(sight.error)
    if known is None:
        return unknown
    return replace(unknown, sentence=f"{unknown.sentence} {age(sight.age_s)} ago: {known.sentence}")


def _row(sight: LastLook[TableSummary]) -> FleetRow:
    table = sight.table
    return FleetRow(table.name, table.uri, advise_sight(sight), sight.view, sight.age_s, sight.is_awaited)


def _advise_broken(entry: BrokenEntry) -> Advice:
    text = f"its entry in the registry is not understood, so nothing maintains it: {entry.problem}"
    return Advice(FleetState.UNKNOWN, "unknown", as_sentence(text), remedy="correct the entry")
