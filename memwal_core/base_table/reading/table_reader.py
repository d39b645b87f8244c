"""Reading a base table: its versions, its indexes, and whether MemWAL can be used on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self
from weakref import WeakValueDictionary

import lance
from lance.lance import _Session

from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.column_names import require_usable_names
from memwal_core.base_table.history.torn import torn_error
from memwal_core.base_table.indexes.inventory import IndexFacts, list_indexes
from memwal_core.base_table.indexes.untrained import is_trained
from memwal_core.base_table.keys.primary_key import check_primary_key, primary_key_of
from memwal_core.base_table.reading.checked_opening import require_sound
from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.base_table.state import TableState
from memwal_core.base_table.translate import translated
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import (
    ConflictError,
    CorruptionError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.lance_field import inner_ids
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import decode_details, is_legacy_payload
from memwal_core.format.paths import LANCE_DIRECTORIES, MEM_WAL_DIRECTORY, table_manifest_path
from memwal_core.format.table_manifest import ManifestFacts
from memwal_core.ids import IdSource, RegionId, parse_region_id
from memwal_core.native.lance_version import require_proven_lance
from memwal_core.native.waiting import in_time
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import MIB, Settings, load_settings
from memwal_core.storage import ObjectStore, open_store
from memwal_core.storage.concurrent import FAST_STORES, run_two

_METADATA_BYTES = 64 * MIB
"""What queries keep of manifests and of the ends of files."""

_JUST_OPENED_S = 1.0
"""So long what lies in the directories of a local table is not looked at again."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where time (waits, dates of new indexes) and randomness (jitter, ids) come from."""

    clock: Clock = field(default_factory=SystemClock)
    rng: Rng = field(default_factory=system_rng)


class TableReader:
    """The reading half of ``BaseTable``: every call reads the newest version unless told one.

    A version that somebody still holds open is shared, not opened again.

    pylance logs an error line at each read of the MemWAL index, because it has no fields; set
    ``LANCE_LOG=error,lance::index=off`` in the environment to silence it.
    """

    def __init__(self, store: ObjectStore, *, settings: Settings | None = None, sources: Sources | None = None) -> None:
        self.store = store
        self.settings = settings if settings is not None else load_settings()
        self.ids = IdSource((sources := sources or Sources()).rng)
        self.clock = sources.clock
        self.rng = sources.rng
        self.manifests = ManifestFiles(store)
        self._observer: Callable[[TableState], None] | None = None
        self.remembered: Callable[[], Mapping[RegionId, int]] = dict
        """Returns, for regions that were seen before, the newest version of the manifest."""
        self._opened: WeakValueDictionary[int, lance.LanceDataset] = WeakValueDictionary()
        self._just_opened: list[tuple[lance.LanceDataset, float]] = []
        self.session = _Session(
            index_cache_size_bytes=self.settings.read.index_cache_bytes, metadata_cache_size_bytes=_METADATA_BYTES
        )
        self._is_cached = False
        self._is_enabled = False

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        store: ObjectStore | None = None,
        sources: Sources | None = None,
    ) -> Self:
        """Open a table that exists.

        Args:
            uri: Path or address of the table.
            storage_options: Options of the object store under pylance's names.
            settings: Storage, retries, thresholds; defaults if None.
            store: A store rooted at the table, instead of one opened from ``uri``.
            sources: Time and randomness; the system's if None.

        Raises:
            ObjectNotFoundError: There is no table at the address.
            InvalidRequestError: The address or the options cannot be used, or this is not a proven version of pylance.
        """
        settings = settings if settings is not None else load_settings()
        require_proven_lance(settings.storage)
        if store is None:
            store = open_store(uri, storage_options=storage_options, settings=settings.storage)
        _require_answer(store)
        table = cls(store, settings=settings, sources=sources)
        table._just_opened.append((table.dataset(session=table.session), table.clock.monotonic()))
        return table

    def observed(self, observer: Callable[[TableState], None]) -> Self:
        """Return the same table; each newest version that is read through it is shown to the observer first."""
        table = copy(self)
        table._observer = observer  # noqa: SLF001 - a copy of its own kind
        return table

    def remembering(self, versions: Callable[[], Mapping[RegionId, int]]) -> Self:
        """Return the same table, which knows what was seen of its regions, see ``remembered``."""
        table = copy(self)
        table.remembered = versions
        return table

    def with_settings(self, settings: Settings) -> Self:
        """Return the same table, which whoever uses it from now on uses with other settings."""
        table = copy(self)
        table.settings = settings
        return table

    def cached(self) -> Self:
        """Return the same table for queries: all its versions are opened in ``session``, which keeps what they read.

        Jobs open versions anew instead, so that they meet the files as they are.
        """
        table = copy(self)
        table._is_cached, table._opened = True, WeakValueDictionary()  # noqa: SLF001 - a copy of its own kind
        return table

    def note(self, state: TableState) -> None:
        """Show the observer a version that was the newest one a moment ago."""
        if self._observer is not None:
            self._observer(state)

    @property
    def uri(self) -> str:
        """Address of the table as pylance opens it."""
        return self.store.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What pylance must be given to open the table."""
        return self.store.storage_options

    def dataset(self, version: int | None = None, session: _Session | None = None) -> lance.LanceDataset:
        """Open a version of the table with pylance, the newest by default. Do not commit with it: it may be shared.

        A ``lance.Session`` shares its caches with other datasets; without one, those who use a version share it.
        ``CorruptionError``: the manifest of the version is torn, see ``history.torn``; or something in the table's
        directory is not a file.
        """
        is_shared = session is None
        if version is not None and is_shared:
            shared = self._opened.get(version)
            if shared is not None:
                return shared
        if is_shared and self._is_cached:
            session = self.session
        self.store.require_files(LANCE_DIRECTORIES)
        try:
            with translated("open the table", self.uri, version=version):
                options = dict(self.storage_options)
                dataset = in_time(
                    lambda: lance.dataset(self.uri, version=version, storage_options=options, session=session), options
                )
        except ObjectNotFoundError:
            raise
        except MemwalError as error:
            raise torn_error(self.store, version) or error from error
        if dataset.version < 1:
            # Lance takes zeros for the manifest of an empty table.
            raise torn_error(self.store, version) or _no_version(self.uri)
        require_sound(dataset)
        if is_shared:
            self._opened[dataset.version] = dataset
        return dataset

    def state(self, version: int | None = None) -> TableState:
        """Read a version of the table, the newest by default.

        ``CorruptionError``: the manifest or the index details contradict the format.
        """
        if version is not None:
            return self._state_of(self.dataset(version))
        state = self._newest_state()
        self.note(state)
        return state

    def _newest_state(self) -> TableState:
        dataset, facts = self._newest()
        try:
            return self._state_of(dataset, facts)
        except ObjectNotFoundError:
            # The newest version was superseded and cleaned up between the two reads.
            return self._state_of(self.dataset())

    def _newest(self) -> tuple[lance.LanceDataset, ManifestFacts | None]:
        """Open the newest version; after ``open``, look whether what it has opened still is that."""
        try:
            opened, since = self._just_opened.pop()  # For one of all copies: the look may turn it into another version.
        except IndexError:
            return self.dataset(), None
        if self.store.kind in FAST_STORES and self.clock.monotonic() - since > _JUST_OPENED_S:
            return self.dataset(), None
        version = opened.version

        def is_newest() -> bool:
            with suppress(MemwalError), translated("read the newest version", self.uri):
                in_time(opened.checkout_latest, self.storage_options)  # Reads a manifest only if it is another file.
                return require_sound(opened).version == version
            return False

        def read() -> ManifestFacts | None:
            with suppress(MemwalError):
                return self.manifests.read(version)
            return None

        newest, facts = run_two(self.store.kind, is_newest, read)
        if not newest:
            return self.dataset(), None
        self._opened[version] = opened
        return opened, facts

    def indexes(self, version: int | None = None) -> tuple[IndexFacts, ...]:
        """List the indexes of a version, Lance's own included."""
        dataset = self.dataset(version)
        fragments = frozenset(dataset.fragment_ids())
        return list_indexes(dataset, lambda index: is_trained(self.store, index, fragments))

    def require_writable(self, state: TableState | None = None) -> MemWalIndexDetails:
        """Return the MemWAL index of a table that regions can be written to and merged into.

        Raises:
            LegacyIndexError: The index has the layout of early releases; leave the table alone.
            InvalidRequestError: There is no usable primary key, a blob column or a name that Lance takes, MemWAL is not
                enabled, or the index is gone while regions exist (``frozen`` in the facts): an overwrite or restore
                dropped progress, and merging old generations again would resurrect rows.
        """
        state = state if state is not None else self.state()
        state.require_primary_key()
        details = self.require_mem_wal(state)
        require_no_blobs(state.schema, "write")
        require_usable_names(state.schema)
        return details

    def require_mem_wal(self, state: TableState | None = None) -> MemWalIndexDetails:
        """Return the MemWAL index; like ``require_writable``, but without checking the primary key."""
        state = state if state is not None else self.state()
        if state.entry is None:
            self.require_no_regions(state)
        return state.require_details()

    def require_enabled(self) -> None:
        """Refuse a plain Lance table, which has neither a MemWAL index nor regions; asks once.

        Raises:
            InvalidRequestError: It is one; nothing should be written beside it.
        """
        if self._is_enabled:
            return
        if not self._regions():
            with suppress(CorruptionError):  # Whoever reads a damaged table next tells more.
                state = self._newest_state()
                if state.entry is None:
                    state.require_details()
        self._is_enabled = True

    def key_columns(self, dataset: lance.LanceDataset) -> tuple[str, ...]:
        """Return the primary key columns of an opened version; refuse a key that MemWAL cannot use."""
        with translated("read the schema", self.uri, version=dataset.version):
            return check_primary_key(dataset.schema, primary_key_of(dataset.lance_schema.fields())).columns

    def _state_of(self, dataset: lance.LanceDataset, facts: ManifestFacts | None = None) -> TableState:
        facts = facts if facts is not None else self.manifests.read(dataset.version)
        with translated("read the table", self.uri, version=dataset.version):
            fields = dataset.lance_schema.fields()
            entry = facts.mem_wal
            legacy = entry is None or is_legacy_payload(entry.payload)
            return TableState(
                version=dataset.version,
                schema=dataset.schema,
                field_ids=MappingProxyType({field.name(): field.id() for field in fields}),
                primary_key=primary_key_of(fields),
                details=None if legacy or entry is None else decode_details(entry.payload),
                entry=entry,
                data_storage_version=dataset.data_storage_version,
                num_rows=dataset.count_rows(),
                timestamp=facts.timestamp,
                is_clone=facts.has_origin,
                inner_ids=MappingProxyType(inner_ids(fields)),
                opened=dataset,
            )

    def require_no_regions(self, state: TableState) -> None:
        """Refuse a table that has regions but no MemWAL index: an operator must decide what becomes of their rows."""
        if state.entry is not None:
            return
        regions = self._regions()
        if regions:
            raise InvalidRequestError(
                "the MemWAL index is gone but regions exist, so the table is frozen",
                remedy="follow docs/runbooks/progress-lost.md: restore a version that has it, or run `memwal enable`, "
                "then `memwal thaw`; merging now could bring deleted rows back",
                table=self.uri,
                version=state.version,
                regions=len(regions),
                frozen=True,
            )

    def _regions(self) -> list[str]:
        return [name for name in self.store.list_directories(MEM_WAL_DIRECTORY) if _is_region(name)]


def _no_version(uri: str) -> ConflictError:
    return ConflictError(
        "the newest manifest of the table was torn and is gone now", remedy="open the table again", table=uri
    )


def _is_region(directory: str) -> bool:
    """Return whether a directory is a region's; leases and ledgers lie beside them."""
    try:
        parse_region_id(directory)
    except InvalidRequestError:
        return False
    return True


def _require_answer(store: ObjectStore) -> None:
    """Ask a remote store for anything: Lance would wait for a silent one several times as long as we do."""
    if store.kind in FAST_STORES:
        return
    try:
        store.head(table_manifest_path(1))
    except (StoreRefusedError, InvalidRequestError):
        return  # An answer; what it means to Lance is Lance's to say.
    except UnavailableError as error:
        if "status" not in error.facts:
            raise
