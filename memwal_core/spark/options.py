"""Options of the data source ``memwal``, checked before anything is read or written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import UNNAMED_STREAM
from memwal_core.reader import Consistency
from memwal_core.settings import MIB
from memwal_core.text import whole_number

_Choice = TypeVar("_Choice", bound=StrEnum)

_STORAGE_PREFIX = "storage."
_READ_OPTIONS = frozenset(
    {"uri", "path", "view", "consistency", "version", "columns", "filter", "partition_rows", "key_bytes", "batch_rows"}
)
_WRITE_OPTIONS = frozenset(
    {"uri", "path", "stream", "batch", "spec_id", "takeover", "delete_column", "checkpointlocation"}
)
_PARTITION_ROWS = 1 << 20
_KEY_BYTES = 128 * MIB


class View(StrEnum):
    """What a read returns.

    ``lsm`` is the table: the newest version of every row. ``base`` is what the base table holds:
    merged rows only. ``regions`` and ``generations`` have a row for each region and each generation
    that the read found, ``history`` one for each recorded run of a job.
    """

    LSM = "lsm"
    BASE = "base"
    REGIONS = "regions"
    GENERATIONS = "generations"
    HISTORY = "history"


_UNHEEDED = {
    View.BASE: {"consistency"},
    View.REGIONS: {"columns", "filter"},
    View.GENERATIONS: {"columns", "filter"},
    View.HISTORY: {"columns", "filter", "consistency", "version"},
}
"""What would change nothing in a view, and is refused there."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.

    Attributes:
        uri: Path or address of the table; executors must reach it by the same.
        storage: Options of the object store under pylance's names; prefer the executors' environment for secrets.
        consistency: Where to look for rows that are not merged yet.
        version: An old version of the base table; None for the newest.
        columns: Columns of the result, ``_gen`` among them if wanted; all if None.
        filter_sql: Condition on the newest versions of rows, in Lance's SQL.
        partition_rows: Rows of the base table per partition, at least one fragment.
        key_bytes: Upper bound of the Arrow bytes of keys that a task holds at once.
        batch_rows: Upper bound of rows per batch; Lance's default if None.
    """

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    view: View = View.LSM
    consistency: Consistency = Consistency.LATEST
    version: int | None = None
    columns: tuple[str, ...] | None = None
    filter_sql: str | None = None
    partition_rows: int = _PARTITION_ROWS
    key_bytes: int = _KEY_BYTES
    batch_rows: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of ``spark.read.format("memwal")``.

        Args:
            options: By lower-case name.

        Raises:
            InvalidRequestError: An option is unknown, missing or malformed.
        """
        _refuse_unknown(options, _READ_OPTIONS)
        view = _one_of(View, options, "view", View.LSM)
        version = _whole(options, "version", 1)
        default = Consistency.LATEST if version is None else Consistency.SNAPSHOT
        consistency = _one_of(Consistency, options, "consistency", default)
        if consistency is Consistency.IN_PROCESS:
            raise InvalidRequestError(
                "Spark tasks cannot read the MemTables of another process",
                remedy="read with consistency `durable`, which finds all acknowledged rows in the WAL",
                consistency=str(consistency),
            )
        unheeded = sorted(_UNHEEDED.get(view, set()) & options.keys())
        if unheeded:
            raise InvalidRequestError(
                "this view does not heed these options",
                remedy="leave them out; views other than `lsm` and `base` are small: select and filter the DataFrame",
                view=str(view),
                options=unheeded,
            )
        columns = _names(options, "columns")
        return cls(
            uri=_address(options),
            storage=_storage(options),
            view=view,
            consistency=consistency,
            version=version,
            columns=columns,
            filter_sql=options.get("filter") or None,
            partition_rows=_whole(options, "partition_rows", 1) or _PARTITION_ROWS,
            key_bytes=_whole(options, "key_bytes", 1) or _KEY_BYTES,
            batch_rows=_whole(options, "batch_rows", 1),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write.

    Attributes:
        uri: Path or address of the table; executors must reach it by the same.
        stream: Name within which batches are named or numbered; None for an unnamed batch.
        batch: Name of the batch within the stream; None for an unnamed one, which cannot be repeated.
        spec_id: Region spec to follow; None if the table has exactly one.
        takeover: What to do about a region whose writer seems alive: ``fail`` or ``fence``.
        delete_column: Boolean column that marks rows to delete; None if there is none.
    """

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream: str | None = None
    batch: str | None = None
    spec_id: int | None = None
    takeover: str = "fail"
    delete_column: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of ``frame.write.format("memwal")`` or ``frame.writeStream.format("memwal")``.

        Args:
            options: By lower-case name.

        Raises:
            InvalidRequestError: An option is unknown, missing or malformed.
        """
        _refuse_unknown(options, _WRITE_OPTIONS)
        stream, batch = options.get("stream"), options.get("batch")
        if (batch is None) is not (stream is None):
            raise InvalidRequestError(
                "a batch is named by two options, `stream` and `batch`, and one is missing",
                remedy="give both, or neither",
                stream=stream,
                batch=batch,
            )
        if stream == UNNAMED_STREAM:
            raise InvalidRequestError(
                "this stream name is reserved for unnamed batches, whose records are not kept",
                remedy="choose another name",
                stream=stream,
            )
        takeover = options.get("takeover", "fail").lower()
        _check_value(options, "takeover", ("fail", "fence"))
        return cls(
            uri=_address(options),
            storage=_storage(options),
            stream=stream,
            batch=batch,
            spec_id=_whole(options, "spec_id", 0),
            takeover=takeover,
            delete_column=options.get("delete_column"),
        )


def _refuse_unknown(options: Mapping[str, str], known: Collection[str]) -> None:
    unknown = sorted(name for name in options if name not in known and not name.startswith(_STORAGE_PREFIX))
    if unknown:
        raise InvalidRequestError(
            "the data source memwal does not know these options",
            remedy="correct their names; options of the object store begin with `storage.`",
            unknown=unknown,
            known=sorted(known),
        )


def _address(options: Mapping[str, str]) -> str:
    named = [options[name] for name in ("uri", "path") if options.get(name)]
    if len(set(named)) != 1:
        raise InvalidRequestError(
            "the table is not named exactly once",
            remedy="give its path or address as option `uri`, or to load() and save()",
            found=named,
        )
    return named[0]


def _storage(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(_STORAGE_PREFIX): value for name, value in options.items() if name.startswith(_STORAGE_PREFIX)
    }


def _names(options: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    text = options.get(option)
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise InvalidRequestError(
            "option `columns` is not a list of distinct names", remedy="separate the names by commas", found=text
        )
    return names


def _whole(options: Mapping[str, str], option: str, least: int) -> int | None:
    text = options.get(option)
    if text is None:
        return None
    number = whole_number(text)
    if number is None or number < least:
        raise InvalidRequestError(
            "an option is not a whole number in range",
            remedy="use a whole number of at least `least`",
            option=option,
            found=text,
            least=least,
        )
    return number


def _one_of(kind: type[_Choice], options: Mapping[str, str], option: str, default: _Choice) -> _Choice:
    text = options.get(option)
    if text is None:
        return default
    _check_value(options, option, tuple(str(each) for each in kind))
    return kind(text.lower())


def _check_value(options: Mapping[str, str], option: str, known: Collection[str]) -> None:
    found = options.get(option)
    if found is not None and found.lower() not in known:
        raise InvalidRequestError(
            "an option has an unknown value",
            remedy="use one of the known values",
            option=option,
            found=found,
            known=list(known),
        )
