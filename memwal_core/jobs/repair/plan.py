"""Which repairs are due, decided from what was found."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.ids import RegionId
from memwal_core.region.census import BRING_BACK
from memwal_core.text import show_count


class RepairKind(StrEnum):
    """What a step of a repair does."""

    SET_ASIDE_TORN = "set_aside_torn_manifest"
    REBUILD = "rebuild_generation"
    GIVE_UP = "give_up_generation"
    REMOVE_DUPLICATES = "remove_duplicate_keys"
    GIVE_UP_ENTRIES = "give_up_wal_entries"


@dataclass(frozen=True, slots=True)
class TornTable:
    """Newest manifests of the base table that are torn.

    Attributes:
        problems: Path -> what is wrong with it, the newest first.
        newest_whole: The version that becomes the newest; None if none is whole.
    """

    problems: Mapping[str, str]
    newest_whole: int | None


@dataclass(frozen=True, slots=True)
class DamagedGeneration:
    """A flushed generation, not merged yet, that cannot be read in full.

    Attributes:
        path: Its directory as recorded; None if the manifest does not record it.
        rows_left: Rows that are left somewhere, older duplicates of a key included.
        rows: Rows that it had; None if unknown.
    """

    region_id: RegionId
    generation: int
    path: str | None
    damage: tuple[str, ...]
    is_complete: bool
    evidence: str
    rows_left: int
    rows: int | None

    @property
    def label(self) -> str:
        """The generation as the command line takes it."""
        return f"{self.region_id}:{self.generation}"


@dataclass(frozen=True, slots=True)
class DamagedWal:
    """Entries of a region's WAL that must be replayed, and cannot be read or are missing.

    Attributes:
        entries: WAL entry -> what is wrong with it, ascending.
    """

    region_id: RegionId
    entries: Mapping[int, str]

    def label(self, wal_id: int) -> str:
        """Return an entry as the command line takes it."""
        return f"{self.region_id}:wal-{wal_id}"


@dataclass(frozen=True, slots=True)
class DuplicateKeys:
    """Keys that have several rows in the base table.

    Attributes:
        removable: Surplus rows that are provably older than the one that stays.
        undecided: Keys of which no copy is provably the newest.
        evidence: What proves the order.
        sample: A few of the undecided keys, else of all.
    """

    keys: int
    removable: int
    undecided: int
    evidence: str
    version: int
    sample: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class RepairState:
    """What was found.

    Attributes:
        torn: None if the newest version of the base table is whole. Nothing else can be found while it is not.
        generations: Ordered by region and generation.
        wals: Ordered by region.
        duplicates: None if keys were not counted, or each has one row.
        unreadable: Region -> why its manifest cannot be read.
        vanished: Region without a directory -> what names it.
    """

    table_uri: str
    torn: TornTable | None = None
    generations: tuple[DamagedGeneration, ...] = ()
    wals: tuple[DamagedWal, ...] = ()
    duplicates: DuplicateKeys | None = None
    unreadable: Mapping[RegionId, str] | None = None
    vanished: Mapping[RegionId, str] | None = None


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing to do.

    Attributes:
        generation: The generation concerned, if one is.
        wal: The WAL entries concerned, if some are.
    """

    kind: RepairKind
    subject: str
    evidence: str
    generation: DamagedGeneration | None = None
    wal: DamagedWal | None = None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"step": self.kind.value, "subject": self.subject, "evidence": self.evidence}


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Damage that this run does not mend.

    Attributes:
        remedy: What to do, with the command if there is one.
    """

    subject: str
    problem: str
    remedy: str

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"subject": self.subject, "problem": self.problem, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a run does, in order, and what it leaves."""

    table_uri: str
    steps: tuple[RepairStep, ...]
    unresolved: tuple[Unresolved, ...]

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.steps)


@dataclass(frozen=True, slots=True)
class AcceptedLosses:
    """What may be given up as far as nothing can rebuild it.

    Attributes:
        entries: WAL entries.
    """

    generations: frozenset[tuple[RegionId, int]] = frozenset()
    entries: frozenset[tuple[RegionId, int]] = frozenset()

    @property
    def regions(self) -> frozenset[RegionId]:
        """The regions that they are in."""
        return frozenset(region_id for region_id, _ in self.generations | self.entries)

    def without_damage(self, state: RepairState) -> AcceptedLosses:
        """Return those of which nothing is damaged."""
        generations = {(each.region_id, each.generation) for each in state.generations}
        entries = {(each.region_id, wal_id) for each in state.wals for wal_id in each.entries}
        return AcceptedLosses(self.generations - generations, self.entries - entries)

    @property
    def labels(self) -> tuple[str, ...]:
        """All of them as the command line takes them."""
        generations = [f"{region_id}:{generation}" for region_id, generation in sorted(self.generations)]
        return (*generations, *(f"{region_id}:wal-{wal_id}" for region_id, wal_id in sorted(self.entries)))


def plan_repair(state: RepairState, losses: AcceptedLosses) -> RepairPlan:
    """Decide what is done and what is left to a person."""
    found = [
        *_torn(state),
        *_generations(state, losses.generations),
        *_wals(state, losses.entries),
        *_duplicates(state),
        *_manifests(state),
    ]
    steps = tuple(each for each in found if isinstance(each, RepairStep))
    return RepairPlan(state.table_uri, steps, tuple(each for each in found if isinstance(each, Unresolved)))


def _torn(state: RepairState) -> Iterator[RepairStep | Unresolved]:
    if state.torn is None:
        return
    problems = "; ".join(f"{path}: {problem}" for path, problem in state.torn.problems.items())
    if state.torn.newest_whole is None:
        yield Unresolved("base table", problems, "restore the table from a copy; no version of it is whole")
        return
    evidence = f"{problems}. Version {state.torn.newest_whole} is whole and becomes the newest"
    yield RepairStep(RepairKind.SET_ASIDE_TORN, "base table", evidence)


def _generations(state: RepairState, losses: Collection[tuple[RegionId, int]]) -> Iterator[RepairStep | Unresolved]:
    for each in state.generations:
        damage = "; ".join(each.damage)
        if each.is_complete:
            yield RepairStep(RepairKind.REBUILD, each.label, f"{damage}. All rows are in {each.evidence}", each)
        elif (each.region_id, each.generation) in losses:
            had = "an unknown number" if each.rows is None else str(each.rows)
            evidence = f"{damage}. {each.evidence}; {each.rows_left} of {had} of its rows are left. Loss was accepted"
            yield RepairStep(RepairKind.GIVE_UP, each.label, evidence, each)
        else:
            yield Unresolved(
                f"generation {each.label}",
                f"{damage}. Nothing can rebuild it: {each.evidence}",
                "restore the files from a copy, or give up the rows that are gone: "
                f"memwal repair {shlex.quote(state.table_uri)} --accept-loss {each.label}",
            )


def _wals(state: RepairState, losses: Collection[tuple[RegionId, int]]) -> Iterator[RepairStep | Unresolved]:
    for each in state.wals:
        given_up = {wal_id: cause for wal_id, cause in each.entries.items() if (each.region_id, wal_id) in losses}
        if given_up:
            evidence = f"{_named(given_up)}. Their rows were in no flushed MemTable. Loss was accepted"
            wal = DamagedWal(each.region_id, given_up)
            yield RepairStep(RepairKind.GIVE_UP_ENTRIES, f"WAL of region {each.region_id}", evidence, wal=wal)
        left = {wal_id: cause for wal_id, cause in each.entries.items() if wal_id not in given_up}
        if left:
            options = " ".join(f"--accept-loss {each.label(wal_id)}" for wal_id in left)
            yield Unresolved(
                f"WAL of region {each.region_id}",
                f"{_named(left)}. Their rows are in no flushed MemTable, and nothing can take the region on",
                "restore these entries under their names from a copy or the bucket's object versions, or give up their "
                f"rows, which takes the region from its writer: memwal repair {shlex.quote(state.table_uri)} {options}",
            )


def _named(entries: Mapping[int, str]) -> str:
    return "; ".join(f"entry {wal_id}: {cause}" for wal_id, cause in entries.items())


def _duplicates(state: RepairState) -> Iterator[RepairStep | Unresolved]:
    found = state.duplicates
    if found is None:
        return
    if found.removable:
        evidence = (
            f"several rows in version {found.version}: {show_count(found.keys, 'key')}; older copies by "
            f"{found.evidence}: {show_count(found.removable, 'row')}"
        )
        yield RepairStep(RepairKind.REMOVE_DUPLICATES, "base table", evidence)
    if found.undecided:
        yield Unresolved(
            "base table",
            f"several rows: {show_count(found.undecided, 'key')}, and nothing proves which is the newest, for example "
            f"{', '.join(str(dict(each)) for each in found.sample)}",
            "follow docs/runbooks/duplicate-keys.md",
        )


def _manifests(state: RepairState) -> Iterator[Unresolved]:
    for region_id, problem in (state.unreadable or {}).items():
        yield Unresolved(f"region {region_id}", problem, "follow docs/runbooks/corrupt-region-manifest.md")
    for region_id, problem in (state.vanished or {}).items():
        yield Unresolved(f"region {region_id}", problem, BRING_BACK)
