"""`memwal create`, `enable` and `add-spec`: making a table that takes streaming upserts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import lance
import pyarrow as pa
import typer
from rich.console import Console

from memwal_core.base_table import TableState, translated
from memwal_core.base_table.new import write_empty_table
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, DryRun, StorageOptions, TableUri, open_table, options_for, print_json
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region.spec.describe import describe_spec
from memwal_core.settings import load_settings
from memwal_core.storage import open_store
from memwal_core.storage.options import environment_storage_options
from memwal_core.table import Table
from memwal_core.text import whole_number

_LONGEST_LIST = 2**31 - 1
"""Values of a list of fixed size, as Arrow counts them."""

Key = Annotated[
    list[str] | None,
    typer.Option("--key", help="Column of the primary key; repeatable, in the key's order.", metavar="COLUMN"),
]
Buckets = Annotated[
    int | None,
    typer.Option(
        "--buckets", min=1, help="Regions by hash of the first key column: as many writers can write at once."
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        help="How rows map to regions instead: a column, bucket(COLUMN, N), multi_bucket(COLUMN, ..., N), "
        "truncate(COLUMN, WIDTH), unsharded; of columns of the key. Repeatable: all together.",
        metavar="COMPONENT",
    ),
]


def create(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="A column and its Arrow type: id:int64, name:string, v:float[768], at:timestamp\\[us]. Repeatable.",
            metavar="NAME:TYPE",
        ),
    ] = None,
    like: Annotated[
        str, typer.Option("--like", help="Take the columns of this Parquet file or Lance table.", metavar="SOURCE")
    ] = "",
    key: Key = None,
    buckets: Buckets = None,
    by: By = None,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Create an empty table that takes streaming upserts.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    if bool(column) == bool(like):
        what = "the columns of a table are given in one way, not in two" if column else "a table needs columns"
        raise InvalidRequestError(what, remedy="give either --column NAME:TYPE or --like SOURCE")
    regions = _regions(buckets, by)
    options = {**environment_storage_options(), **options_for(storage_option, uri, *([like] if like else []))}
    schema = _schema_of(like, options) if like else _schema(column or [])
    settings = load_settings()
    if dry_run:
        store = open_store(uri, storage_options=options or None, settings=settings.storage)
        planned = write_empty_table(store, schema, list(key or ()), regions, dry_run=True)
        specs = [describe_spec(planned.spec, planned.field_ids)]
        _show(_Shown(store.uri, "created", JobOutcome.PLANNED, 0, tuple(key or ()), specs), json=json)
        return
    table = Table.create(
        uri,
        schema,
        key=list(key or ()),
        buckets=regions if isinstance(regions, int) else None,
        regions=() if isinstance(regions, int) else regions,
        storage_options=options or None,
        settings=settings,
    )
    _show(_shown(table.uri, table.base.state(), "created", JobOutcome.DONE), json=json)


def enable(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    key: Key = None,
    buckets: Buckets = None,
    by: By = None,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="Index that MemTables maintain. Repeatable.", metavar="NAME"),
    ] = None,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Let a Lance table that exists take streaming upserts.

    With --key, columns become the primary key of a table that has none: every row is read, and the command refuses
    keys that are NULL or occur twice. MemWAL cannot be switched off again; docs/lancedb.md says why, and how to
    get a plain table.

    A table that was overwritten has lost its index, but not its regions. It gets the key and the division that it had,
    and stays frozen until `memwal thaw` says what becomes of the regions' rows.

    Exit codes: 0 done, 2 bad input, 4 conflict or storage failure (try again).
    """
    table = open_table(uri, storage_option)
    has_regions = bool(table.opened.manifests.region_ids())
    regions = [] if has_regions and not (buckets or by) else _regions(buckets, by)
    state = table.enable(key=list(key or ()), regions=regions, maintained_indexes=list(index or ()), dry_run=dry_run)
    outcome = JobOutcome.PLANNED if dry_run else JobOutcome.DONE
    _show(replace(_shown(table.uri, state, "enabled", outcome), is_frozen=has_regions), json=json)


@may_find_nothing
def add_spec(
    uri: TableUri,
    by: By = None,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Divide a table into regions in another way; writers name the new spec when they open.

    Writers of the new one are refused until what waits under the old one is merged (`memwal checkpoint`): a key must
    not wait in two regions. LanceDB's client and pylance's writer refuse a table of two specs from then on.

    Exit codes: 0 done, 2 bad input, 3 a spec divides the table so already, 4 conflict or storage failure (try again).
    """
    if not by:
        raise InvalidRequestError("a spec needs a component", remedy="give at least one --by COMPONENT")
    table = open_table(uri, storage_option)
    report = table.configuration.divide(by, dry_run=dry_run)
    if json:
        print_json(report.to_dict())
    else:
        Console(highlight=False, soft_wrap=True).print(
            f"{'planned: ' if dry_run else ''}{report.change}, version {report.version}", markup=False
        )
    sys.exit(report.outcome.exit_code)


def _regions(buckets: int | None, by: list[str] | None) -> list[str] | int:
    if buckets is not None and by:
        raise InvalidRequestError(
            "a table is divided into regions in one way, not in two", remedy="give --buckets or --by, not both"
        )
    return by or buckets or 1


def _schema(columns: list[str]) -> pa.Schema:
    fields = []
    for text in columns:
        name, separator, kind = text.rpartition(":")
        if not separator or not name:
            raise InvalidRequestError("a column is a name and a type", remedy="write NAME:TYPE", column=text)
        try:
            fields.append(pa.field(name, _type(kind.strip(), text)))
        except UnicodeEncodeError as error:
            raise InvalidRequestError("the name of a column is no text", remedy="write it in UTF-8") from error
    return pa.schema(fields)


def _type(kind: str, column: str) -> pa.DataType:
    if kind.endswith("]") and not kind.startswith(("timestamp[", "time", "duration[")):
        item, _, length = kind[:-1].rpartition("[")
        if 0 < (whole_number(length) or 0) <= _LONGEST_LIST:
            return pa.list_(_type(item, column), int(length))
        if not length:
            return pa.list_(_type(item, column))
    try:
        return pa.type_for_alias(kind)
    except ValueError as error:
        raise InvalidRequestError(
            "this is not a type of Arrow",
            remedy="write for example int64, float, string, bool, timestamp[us], date32, float[768], string[]",
            column=column,
        ) from error


def _schema_of(source: str, options: dict[str, str]) -> pa.Schema:
    if Path(source).is_file():
        # Only this command needs it.
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            schema = pq.read_schema(source)
        except (OSError, pa.ArrowException) as error:
            raise InvalidRequestError(
                "the source is not a Parquet file", remedy="name a Parquet file or a Lance table", source=source,
                problem=str(error),
            ) from error  # fmt: skip
        return schema.remove_metadata()
    with translated("read the columns of a table", source):
        found = lance.dataset(source, storage_options=options or None).schema
    # Without the marks of the other table's key, which is not this one's.
    return pa.schema([field.remove_metadata() for field in found])


@dataclass(frozen=True, slots=True)
class _Shown:
    uri: str
    what: str
    outcome: JobOutcome
    version: int
    key: Sequence[str]
    regions: Sequence[str]
    is_frozen: bool = False


def _shown(uri: str, state: TableState, what: str, outcome: JobOutcome) -> _Shown:
    specs = [describe_spec(spec, state.field_ids) for spec in state.require_details().region_specs]
    return _Shown(uri, what, outcome, state.version, state.primary_key.columns, specs)


def _show(table: _Shown, *, json: bool) -> None:
    if json:
        print_json(
            {"outcome": table.outcome.value, "table_uri": table.uri, "version": table.version,
             "key": list(table.key), "regions": list(table.regions), "frozen": table.is_frozen}
        )  # fmt: skip
        return
    console = Console(highlight=False, soft_wrap=True)
    key, regions = ", ".join(table.key), "; ".join(table.regions)
    what = f"would be {table.what}" if table.outcome is JobOutcome.PLANNED else table.what
    console.print(f"{what}: {table.uri}  version {table.version}, key ({key}), regions {regions}", markup=False)
    if table.is_frozen:
        console.print(
            "frozen, because the regions of the index that is gone are there: `memwal thaw` shows the choices",
            markup=False,
        )
