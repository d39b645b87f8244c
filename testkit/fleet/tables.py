"""The tables of the fleet: most are sound and written all the time, some are broken, each in its own way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memwal_core.base_table import BaseTable
from memwal_core.format.paths import generation_path
from memwal_core.settings import load_settings
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.s3_server import BUCKET, S3Server
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

LAKE = "lake"
"""Connection of the tables in the object store."""

SILENT = "silent"
"""Connection to an endpoint that accepts and never answers."""


@dataclass(frozen=True)
class FleetTable:
    """A table of the fleet.

    Attributes:
        entry: Further lines of its entry in the registry.
        batch_rows: Rows of a put of its live writer; 0 if it has none.
        pause_s: Between two puts, on average.
        storage_options: Of its store.
        ails: Of a broken table, what the watch must say of it: a finding, or ``not examined``.
        told: Of a broken table, words of the sentence that Airflow's page must have for it.
    """

    name: str
    uri: str
    entry: Mapping[str, object] = field(default_factory=dict)
    batch_rows: int = 0
    pause_s: float = 6.0
    storage_options: Mapping[str, str] = field(default_factory=dict)
    ails: str = ""
    told: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing may ever be said against it."""
        return not self.ails

    def open(self) -> BaseTable:
        """Return the base table."""
        return BaseTable.open(self.uri, storage_options=self.storage_options, settings=load_settings())

    def to_toml(self) -> str:
        """Return its section of the registry."""
        values = {"name": self.name, "uri": self.uri, **self.entry}
        return "\n".join(["[[tables]]", *(f"{key} = {_toml(value)}" for key, value in values.items())]) + "\n"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


NOT_EXAMINED = "not examined"


def make_fleet(directory: Path, s3: S3Server, sound: int) -> tuple[FleetTable, ...]:
    """Make so many sound tables and all broken ones; of the sound ones every fifth is in the object store."""
    made = [_sound(number, directory, s3) for number in range(sound - 1)]
    return (*made, _of_many_regions(directory), *_broken(directory))


def _sound(number: int, directory: Path, s3: S3Server) -> FleetTable:
    name, entry = f"sound-{number:02}", dict[str, object]()
    is_remote, is_large = number % 5 == 4, number % 11 == 3
    uri = f"s3://{BUCKET}/{name}" if is_remote else str(directory / name)
    if is_remote:
        entry["connection"] = LAKE
    if number % 8 == 1:
        entry["checks"] = "mandatory" if number % 16 == 1 else "advisory"
    options = s3.storage_options if is_remote else {}
    made = make_people_table(uri, rows=people(), buckets=1 + number % 4, storage_options=options)
    if number % 3 == 0:
        made.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    return FleetTable(name, uri, entry, 400 if is_large else 100, storage_options=options)


def _of_many_regions(directory: Path) -> FleetTable:
    uri = str(directory / "many-regions")
    make_people_table(uri, buckets=200)
    return FleetTable("many-regions", uri, batch_rows=400, pause_s=40.0)


def _broken(directory: Path) -> tuple[FleetTable, ...]:
    hurt = {name: _hurt(name, directory, blow) for name, blow in _BLOWS.items()}
    elsewhere = f"s3://{BUCKET}"
    silent = FleetTable("silent", f"{elsewhere}/silent", {"connection": SILENT}, ails=NOT_EXAMINED, told="answer")
    return (
        FleetTable("damaged-region", hurt["damaged-region"], ails="manifest-unreadable", told="manifest"),
        FleetTable("hostile-manifest", hurt["hostile-manifest"], ails="table-unreadable", told="manifest"),
        FleetTable("lost-memtable", hurt["lost-memtable"], ails="generation-missing", told="MemTable"),
        FleetTable("frozen", hurt["frozen"], ails="table-frozen", told="a person thaws it"),
        FleetTable(
            "no-connection", f"{elsewhere}/none", {"connection": "nobody"}, ails=NOT_EXAMINED, told="connection nobody"
        ),
        silent,
        FleetTable(
            "misspelled", str(directory / "misspelled"), {"every_minute": 5}, ails=NOT_EXAMINED, told="every_minute"
        ),
    )


def _hurt(name: str, directory: Path, blow: Callable[[Table], None]) -> str:
    made = make_people_table(str(directory / name), rows=people(*range(20)), buckets=2)
    write_generations(made, list(range(100, 120)), list(range(110, 130)), name="new", owned=True)
    blow(Table.open(made.uri))
    return made.uri


def _garble_region(table: Table) -> None:
    Vandal(table.base).garble_manifest(table.opened.manifests.region_ids()[0])


def _garble_table(table: Table) -> None:
    for manifest in (Path(table.uri) / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"\xff" * 4_000)


def _lose_memtable(table: Table) -> None:
    region = table.opened.manifests.load(table.opened.manifests.region_ids()[0])
    shutil.rmtree(Path(table.uri) / generation_path(region.region_id, region.flushed_generations[0].path))


def _freeze(table: Table) -> None:
    table.freeze("somebody looks at it", by="the on-call engineer")


_BLOWS: Mapping[str, Callable[[Table], None]] = {
    "damaged-region": _garble_region,
    "hostile-manifest": _garble_table,
    "lost-memtable": _lose_memtable,
    "frozen": _freeze,
}
