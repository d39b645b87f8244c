"""Merge progress and index catch-up: recorded, possible, and never going back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from memwal_core.ids import RegionId
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding, Severity

_SHOWN = 20
_LOST = "stop merging and garbage collection and follow docs/runbooks/progress-lost.md"


def table_is_readable(seen: Examination) -> Iterator[Finding]:
    """The newest version of the table and its MemWAL index can be read."""
    if seen.state_problem is not None:
        yield Finding(
            "table-unreadable",
            Severity.CRITICAL,
            "the table or its MemWAL index cannot be read",
            {"problem": seen.state_problem, **({"torn": dict(seen.torn)} if seen.torn else {})},
            "no job can tell what is merged",
            "set the torn manifest aside, which makes the version before it the newest"
            if seen.torn
            else "stop all jobs of this table; compare with an older version of it",
        )


def base_files_can_be_read(seen: Examination) -> Iterator[Finding]:
    """Every file that the newest version names is there, whole."""
    problems = seen.base_files.problems
    if problems:
        yield Finding(
            "base-file-damaged",
            Severity.CRITICAL,
            "files of the base table are missing or damaged",
            {
                "version": seen.state.version if seen.state is not None else None,
                "damaged": len(problems),
                "looked_at": seen.base_files.files,
                "files": {each.path: each.cause for each in problems[:_SHOWN]},
            },
            "their rows are lost, scans fail, and a merge fails as soon as it reads them",
            "restore the files from a copy or from the bucket's object versions; start no compaction and remove no "
            "version meanwhile",
        )


def merges_are_possible(seen: Examination) -> Iterator[Finding]:
    """The base table has what every merge needs."""
    if seen.obstacle:
        yield Finding(
            "merge-impossible",
            Severity.CRITICAL,
            "no merge can take the rows of this table's regions",
            {"problem": seen.obstacle},
            "rows stay in the regions for ever, and readers become slower with each flush",
            "correct what the problem names",
        )


def table_is_not_frozen(seen: Examination) -> Iterator[Finding]:
    """Jobs may work on the table and on each region."""
    for freeze in seen.record.active if seen.record is not None else ():
        facts = freeze.cause.facts
        where = f" (region {freeze.region_id})" if freeze.region_id is not None else ""
        subject = f"{freeze.cause.value}{where}"
        choices = f"{'choice is' if len(facts.choices) == 1 else 'choices are'} {', '.join(facts.choices)}"
        told = (
            {"subject": subject, "cause": freeze.cause.value, "by": freeze.by, **freeze.evidence},
            facts.risk,
            f"run `memwal thaw {shlex.quote(seen.table_uri)}` and decide; the {choices}",
            freeze.region_id,
            facts.runbook,
        )
        if freeze.stops_table:
            yield Finding("table-frozen", Severity.CRITICAL, f"no job works on the table: {facts.summary}", *told)
        else:
            yield Finding("region-frozen", Severity.CRITICAL, f"no job works on the region: {facts.summary}", *told)


def record_is_readable(seen: Examination) -> Iterator[Finding]:
    """The maintenance record says whether jobs may act."""
    if seen.record_problem:
        yield Finding(
            "record-unreadable",
            Severity.CRITICAL,
            "the maintenance record of the table cannot be read",
            {"problem": seen.record_problem},
            "no job acts, because the record may say that the table is frozen",
            "find out whether the table was frozen, and put the damaged version aside",
            runbook="docs/runbooks/record-unreadable.md",
        )


def index_is_there(seen: Examination) -> Iterator[Finding]:
    """A table with regions has a MemWAL index."""
    if seen.state is not None and seen.state.entry is None and seen.regions:
        yield Finding(
            "index-gone",
            Severity.CRITICAL,
            "the table has regions but no MemWAL index",
            {
                "version": seen.state.version,
                "regions": len(seen.regions),
                "versions_with_index": [each.version for each in seen.retained if each.enabled][-5:],
            },
            "merging now could bring deleted rows back; all jobs refuse the table",
            _LOST,
        )


def progress_is_possible(seen: Examination) -> Iterator[Finding]:
    """No generation is merged that was never flushed."""
    for region, manifest in seen.readable():
        merged = seen.merged(region.region_id)
        if merged >= manifest.current_generation:
            yield Finding(
                "progress-ahead",
                Severity.CRITICAL,
                "the table records a generation as merged that its region has not flushed",
                {
                    "merged": merged,
                    "current_generation": manifest.current_generation,
                    "manifest_version": manifest.version,
                },
                "the next generations would be taken for merged, and their rows never reach the base table",
                "stop the region's writer, and find out whether the region or the table was restored from a copy",
                region.region_id,
            )


def progress_has_its_region(seen: Examination) -> Iterator[Finding]:
    """Merge progress belongs to regions that exist."""
    if seen.state is None or seen.state.details is None:
        return
    known = {region.region_id for region in seen.regions}
    for region_id, merged in seen.state.details.merged_generations.items():
        if region_id not in known:
            yield Finding(
                "progress-of-unknown-region",
                Severity.WARNING,
                "merge progress is recorded for a region that does not exist",
                {"merged": merged},
                "either a merge did not check its input, or the region's directory was removed with its rows",
                "find out which job recorded it, and whether the region was dropped on purpose",
                region_id,
            )


def progress_never_goes_back(seen: Examination) -> Iterator[Finding]:
    """No region's merge progress is below what an earlier version or a finished merge recorded."""
    if seen.state is None or seen.state.details is None:
        return
    for region_id, (highest, source) in _highest_progress(seen).items():
        merged = seen.merged(region_id)
        if merged < highest:
            yield Finding(
                "progress-went-back",
                Severity.CRITICAL,
                "merge progress went back, because the table was restored or overwritten",
                {"merged": merged, "was": highest, "according_to": source, "version": seen.state.version},
                "the table no longer has the generations in between; if they were collected, their rows are lost",
                _LOST,
                region_id,
            )


def catchup_follows_progress(seen: Examination) -> Iterator[Finding]:
    """No index is recorded as covering generations that are not merged."""
    if seen.state is None or seen.state.details is None:
        return
    for name, progress in sorted(seen.state.details.index_catchup.items()):
        for region_id, covered in progress.items():
            if covered > seen.merged(region_id):
                yield Finding(
                    "catchup-ahead",
                    Severity.CRITICAL,
                    "an index is recorded as covering generations that are not merged",
                    {"subject": name, "index": name, "covered": covered, "merged": seen.merged(region_id)},
                    "flushed MemTables may be deleted before the index covers their rows, and queries miss them",
                    "collect no garbage; run `memwal merge`, which forgets what the index is said to cover, then "
                    "`memwal catchup`",
                    region_id,
                )


def _highest_progress(seen: Examination) -> dict[RegionId, tuple[int, str]]:
    """Return what was merged at most, by the record; without one, by the versions that are left.

    After a thaw, progress may rightly be lower than in an old version.
    """
    highest: dict[RegionId, tuple[int, str]] = {}
    told = [(each.label, each.merged) for each in seen.retained if each.branch is None]
    if seen.record is not None:
        told = [("the maintenance record", seen.record.memory.progress)]
    for source, progress in told:
        for region_id, merged in progress.items():
            if merged > highest.get(region_id, (0, ""))[0]:
                highest[region_id] = (merged, source)
    return highest
