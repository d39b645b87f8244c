"""What became of a copy, for people and for machines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.jobs.backup.plan import CopyMoment
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import ReportView, show_words
from memwal_core.text import show_bytes, show_count

_PROVEN = {
    "files": "file",
    "base_rows": "base row",
    "flushed_memtables": "unmerged MemTable",
    "flushed_rows": "unmerged row",
    "wal_entries": "unflushed WAL entry",
}


@dataclass(frozen=True, slots=True)
class CopyReport:
    """One backup or clone.

    Attributes:
        proof: What was verified, and how many of it; nothing if nothing was copied.
    """

    job: str
    table_uri: str
    target: str
    outcome: JobOutcome
    moment: CopyMoment
    proof: Mapping[str, int]
    seconds: float

    def why(self) -> str:
        """Say what was copied, one sentence."""
        if self.outcome is JobOutcome.NOTHING_TO_DO:
            return f"{self.target} holds a complete {self.job} of version {self.moment.version}; name another target"
        would = "would copy" if self.outcome is JobOutcome.PLANNED else "copied and verified"
        moment = self.moment
        return (
            f"{would} version {moment.version} ({show_count(moment.rows, 'row')}), "
            f"{show_count(moment.regions, 'region')} with "
            f"{show_count(moment.generations, 'flushed MemTable')} and "
            f"{show_count(moment.wal_entries, 'WAL entry')}: {show_count(len(moment.files), 'file')}, "
            f"{show_bytes(moment.size_bytes)}"
        )

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        moment = self.moment
        return {
            "target": self.target,
            "version": moment.version,
            "rows": moment.rows,
            "regions": moment.regions,
            "generations": moment.generations,
            "wal_entries": moment.wal_entries,
            "files": len(moment.files),
            "bytes": moment.size_bytes,
            "proof": dict(self.proof),
        }

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": self.job,
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "why": self.why(),
            "seconds": round(self.seconds, 6),
            **self.facts(),
        }

    def view(self) -> ReportView:
        """Return the outcome and what to do with the copy."""
        notes = [f"target: {self.target}"]
        if self.proof:
            counts = (show_count(count, _PROVEN.get(name, show_words(name))) for name, count in self.proof.items())
            notes.append(f"verified: {', '.join(counts)}")
        if self.job == "backup" and self.outcome is not JobOutcome.PLANNED:
            notes.append(f"to use it at this address: memwal relocate {shlex.quote(self.target)}")
        return ReportView(f"{show_words(self.outcome.value)}: {self.why()}", notes=tuple(notes))
