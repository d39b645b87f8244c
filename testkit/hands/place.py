"""One table at one address with its model: how it is opened, what it shows, and what is wrong with that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa

from memwal_core.base_table import BaseTable, Sources
from memwal_core.clock import SystemClock
from memwal_core.coordination.freeze import FreezeCause
from memwal_core.errors import CorruptionError, FrozenError, InternalError, InvalidRequestError, MemwalError
from memwal_core.ids import RegionId
from memwal_core.jobs.context import OpenTable
from memwal_core.reader.freshness import FRESHNESS_KEY
from memwal_core.settings import CompactSettings, FlushSettings, GcSettings, Settings, WalCollection, WriterSettings
from memwal_core.settings.model import StorageSettings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore
from testkit.hands.clients import KEYS
from testkit.hands.model import HISTORY_CAUSES, Rows, TableModel
from testkit.tables.readable import keys_of

_LATER = timedelta(days=30)
_HOUR_S = 3600.0
_YEAR_S = 365 * 24 * _HOUR_S
_COLUMNS = ["id", "name"]


class WrongError(AssertionError):
    """The table showed or did what the model excludes."""


def hands_settings(codec: str, *, packs: bool) -> Settings:
    """Return settings under which every job has something to do and nothing waits.

    Args:
        codec: WAL codec of new regions of this project's writer.
        packs: Whether a flush packs small entries; else it links them.
    """
    return Settings(
        storage=StorageSettings(fsync=False, retry_wait_s=0),
        writer=WriterSettings.model_validate(
            {
                "background_flush": False,
                "max_memtable_age_s": _YEAR_S,
                "new_region_codec": codec,
                **({} if packs else {"pack_below_bytes": 0}),
            }
        ),
        compact=CompactSettings(min_fragments=2, retention_s=_HOUR_S, keep_versions=1),
        flush=FlushSettings(min_age_s=0),
        gc=GcSettings(
            grace_s=0,
            open_writer_s=0,
            collect_wal=WalCollection.ALL,
            wal_min_age_s=60,
            orphan_age_s=_HOUR_S,
            manifest_retention=2,
            manifest_min_age_s=0,
            allow_unsafe_retention=True,
        ),
    )


@dataclass
class TablePlace:
    """A table where it lies now.

    Attributes:
        uri: Its path.
        model: What it must show.
        settings: Of everything that works on it.
        has_links: Whether the store of our writer has links; without them flushed MemTables name their WAL.
    """

    uri: str
    model: TableModel
    settings: Settings
    has_links: bool = True
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().now() + _LATER))

    @property
    def name(self) -> str:
        """Its directory."""
        return Path(self.uri).name

    def table(self, *, even_if_damaged: bool = False) -> Table:
        """Open the table as a new process does."""
        opened = OpenTable.at(self.uri, settings=self.settings, clock=self.clock, even_if_damaged=even_if_damaged)
        if not self.has_links:
            store = FaultyStore(opened.base.store)
            store.has_links = False
            sources = Sources(self.clock, opened.base.rng)
            opened = OpenTable.of(BaseTable(store, settings=self.settings, sources=sources))
        return Table(opened)

    def excuses(self) -> set[FreezeCause]:
        """Return the causes that a freeze may have."""
        moved = {FreezeCause.ADDRESS_CHANGED} if self.is_moved else set()
        return self.model.excuses | self.model.frozen | moved

    @property
    def is_moved(self) -> bool:
        """Whether jobs know the table, and not at this address."""
        return bool(self.model.addresses) and self.uri not in self.model.addresses

    def require_excused(self, error: Exception, what: str) -> str:
        """Require that a refusal is an error of ours that some hand explains, and return its words.

        Raises:
            WrongError: It is not.
        """
        model = self.model
        if not isinstance(error, MemwalError) or isinstance(error, InternalError):
            raise WrongError(f"{what}: {type(error).__name__}: {error}") from error
        said = f"{type(error).__name__}: {error.what}"
        if isinstance(error, FrozenError):
            causes = {FreezeCause(each) for each in _causes(error)}
            if causes - self.excuses():
                raise WrongError(f"{what}: frozen without a reason: {sorted(causes - self.excuses())}: {error}")
            model.frozen |= causes
            return f"frozen by {', '.join(sorted(causes))}"
        if isinstance(error, InvalidRequestError) and not model.is_enabled:
            return said
        if model.is_sound and not (model.must_freeze and isinstance(error, CorruptionError)):
            raise WrongError(f"{what}: refused without a reason: {error}") from error
        return said

    def note_version(self, progress: Mapping[RegionId, int] | None, rows: Rows | None = None) -> None:
        """Note the newest version; its rows are those of the version before if none are given."""
        number = lance.dataset(self.uri).version
        self.model.has_version(number, self.model.now.rows if rows is None else rows, progress)

    def stored_progress(self) -> Mapping[RegionId, int] | None:
        """Return the merge progress that the newest version records."""
        details = self.table().base.state().details
        return None if details is None else details.merged_generations

    def settle(self) -> None:
        """Take over what jobs made of the table: more generations, progress, and the rows that follow from it.

        Raises:
            WrongError: Progress went where it may not go.
        """
        try:
            progress = self.stored_progress()
        except MemwalError as error:
            self.require_excused(error, "state")
            return
        self._notice_flushes()
        model = self.model
        if progress is None or model.now.progress is None:
            if (progress is None) != (model.now.progress is None):
                raise WrongError("the MemWAL index came or went with a job")
            self.note_version(progress)
            return
        stored = {each: merged.generation for each, merged in model.now.progress.items()}
        changed = {each: merged for each, merged in progress.items() if merged != stored.get(each, 0)}
        wrong = [each for each in changed.items() if model.stops_all or not self._may_become(*each)]
        if wrong:
            self._read_base()  # Wrong rows are worse than wrong progress, and told first.
            raise WrongError(f"progress became {wrong} although {sorted(model.must_freeze)} {model.regions}")
        rows = model.after_progress(changed)
        keeps = {each: merged for each, merged in model.now.progress.items() if each not in changed}
        self.note_version(progress, rows)
        dated = dict(model.now.progress or {}) | keeps
        model.versions[model.newest] = type(model.now)(model.now.rows, dated)

    def _may_become(self, region_id: RegionId, merged: int) -> bool:
        known = self.model.regions.get(region_id)
        return known is not None and self.model.merged(region_id) < merged <= len(known.layers)

    def _notice_flushes(self) -> None:
        waiting = [each for each, region in self.model.regions.items() if region.tail]
        manifests = self.table().opened.manifests
        for region_id in waiting:
            try:
                current = manifests.load(region_id).current_generation
            except MemwalError:
                continue
            if current == len(self.model.regions[region_id].layers) + 2:
                self.model.regions[region_id].flushed()

    def look(self) -> str:
        """Read everything in every way, and compare; return what was refused, or warned of.

        Raises:
            WrongError: Other rows than the model's without a warning, an error that is not ours, a refusal or a warning
                without a reason.
        """
        truth = self.model.truth()
        said = {self._read(way, read, truth) for way, read in _WAYS.items()}
        said |= {self._read_base()}
        self._read_versions()
        return ", ".join(sorted(said - {""}))

    def _read(self, way: str, read: Callable[[Table], pa.Table], truth: Rows) -> str:
        try:
            rows = read(self.table())
        except Exception as error:  # noqa: BLE001 - whatever a read raises is judged
            return self.require_excused(error, way)
        causes = {FreezeCause(each) for each in json.loads(rows.schema.metadata[FRESHNESS_KEY])["frozen"]}
        if causes - self.excuses():
            raise WrongError(f"{way}: warns without a reason: {sorted(causes - self.excuses())}")
        if self.model.is_turned_back:
            # Content and progress no longer belong together: what the rows are is a person's to say.
            if not causes & HISTORY_CAUSES:
                raise WrongError(f"{way}: does not warn of a table that was turned back: {sorted(causes)}")
            return f"{way} warns"
        _require_equal(way, _as_rows(way, rows), truth)
        return ""

    def _read_base(self) -> str:
        try:
            rows = lance.dataset(self.uri).to_table(columns=_COLUMNS)
        except Exception as error:  # Lance's own errors.
            if self.model.is_sound:
                raise WrongError(f"base table: {type(error).__name__}: {error}") from error
            return "Lance refuses"
        _require_equal("base table", _as_rows("base table", rows), self.model.now.rows)
        return ""

    def _read_versions(self) -> None:
        if not self.model.is_sound:
            return
        for tag, rows in self.model.tags.items():
            self._require_version(f"tag {tag}", tag, rows)
        for branch, made in self.model.branches.items():
            if made.uri == self.uri:  # Lance's branches name the table's address.
                self._require_version(f"branch {branch}", (branch, None), made.rows)

    def _require_version(self, what: str, reference: str | tuple[str, None], rows: Rows) -> None:
        try:
            found = lance.dataset(self.uri).checkout_version(reference).to_table(columns=_COLUMNS)
        except Exception as error:  # Lance's own errors.
            raise WrongError(f"{what}: {type(error).__name__}: {error}") from error
        _require_equal(what, _as_rows(what, found), rows)


def _causes(error: FrozenError) -> Iterable[str]:
    found = error.facts["causes"]
    return found if isinstance(found, list | tuple) else [str(found)]


def _as_rows(way: str, rows: pa.Table) -> Rows:
    found = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    if len(found) != rows.num_rows:
        raise WrongError(f"{way}: {rows.num_rows - len(found)} keys are there twice")
    return found


def _require_equal(way: str, found: Rows, wanted: Rows) -> None:
    if found == wanted:
        return
    wrong = {key: (found.get(key), wanted.get(key)) for key in sorted(found.keys() | wanted.keys())}
    wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
    raise WrongError(f"{way}: wrong rows, as key: (found, wanted): {wrong}")


_WAYS: Mapping[str, Callable[[Table], pa.Table]] = {
    "scan": lambda table: table.to_arrow(consistency="durable"),
    "lookup": lambda table: table.lookup(keys_of(*range(KEYS)), _COLUMNS, consistency="durable"),
}
