"""When a flight was due, left and landed, as instants.

The source gives clock times of the airports, of which only the scheduled departure has a date and
a UTC hour. Departure follows from the delay; landing needs the time zones of both airports,
because the clock at the destination says nothing about the hours that passed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError

MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US
INSTANT = pa.timestamp("us", tz="UTC")

_MINUTES_PER_DAY = 24 * 60
_EASTERN_STANDARD = -5 * 60

# Destinations that the airport list of the source leaves out. All keep Atlantic Standard Time the year round.
_UNLISTED_AIRPORTS = pa.table(
    {
        "faa": pa.array(["BQN", "PSE", "SJU", "STT"]),
        "tz": pa.array([-4, -4, -4, -4], pa.int64()),
        "dst": pa.array(["N", "N", "N", "N"]),
    }
)

Minutes = npt.NDArray[np.int64]


def with_event_times(rows: pa.Table, airports: pa.Table) -> pa.Table:
    """Append the three instants of each flight.

    Args:
        rows: Flights with the columns of the source.
        airports: ``faa`` code, ``tz`` (hours from UTC in winter) and ``dst`` (``A``: changes its clocks as the
            United States do).

    Returns:
        The rows with ``scheduled_at``, ``departed_at`` and ``landed_at`` (timestamp[us, UTC]). A flight without
        ``dep_time`` has no ``departed_at``, one without ``arr_time`` no ``landed_at``.

    Raises:
        InvalidRequestError: A destination has no time zone; use the airport list that belongs to the flights.
    """
    utc_hour = _minutes(rows["time_hour"].cast(pa.int64())) // MINUTE_US
    scheduled = utc_hour + _minutes(rows["minute"])
    departed = scheduled + _minutes(rows["dep_delay"])

    origin_offset = date_days(rows) * _MINUTES_PER_DAY + _minutes(rows["hour"]) * 60 - utc_hour
    destination_offset = _destination_offset(rows["dest"], origin_offset, airports)
    local_difference = _clock_minutes(rows["arr_time"]) - _clock_minutes(rows["dep_time"])
    # No flight of the source takes a day, so that the remainder is the time that passed.
    elapsed = (local_difference - destination_offset + origin_offset) % _MINUTES_PER_DAY

    without_departure = _is_null(rows["dep_time"])
    without_landing = without_departure | _is_null(rows["arr_time"])
    return (
        rows.append_column("scheduled_at", _instants(scheduled, None))
        .append_column("departed_at", _instants(departed, without_departure))
        .append_column("landed_at", _instants(departed + elapsed, without_landing))
    )


def date_days(rows: pa.Table) -> Minutes:
    """Return the date of each flight in days since 1970-01-01."""
    months = (_minutes(rows["year"]) - 1970) * 12 + _minutes(rows["month"]) - 1
    first_of_month = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return first_of_month + _minutes(rows["day"]) - 1


def _destination_offset(destinations: pa.ChunkedArray, origin_offset: Minutes, airports: pa.Table) -> Minutes:
    # Minutes from UTC at each destination when the flight is due; it changes its clocks with the origin or never.
    known = pa.concat_tables([_UNLISTED_AIRPORTS, airports.select(_UNLISTED_AIRPORTS.column_names)])
    position = pc.index_in(destinations, known["faa"].combine_chunks())
    if position.null_count:
        unknown = pc.unique(destinations.filter(pc.is_null(position))).to_pylist()
        raise InvalidRequestError(
            "destinations have no time zone",
            remedy="use the airports.csv that belongs to the flights",
            airports=unknown,
        )
    winter = _minutes(known["tz"].take(position)) * 60
    changes_clocks = np.asarray(pc.equal(known["dst"], "A").take(position))
    return winter + np.where(changes_clocks, origin_offset - _EASTERN_STANDARD, 0)


def _clock_minutes(clock: pa.ChunkedArray) -> Minutes:
    """Turn clock times written as hhmm into minutes after midnight; 2400 is the midnight that ends a day."""
    written = _minutes(clock)
    return written // 100 * 60 + written % 100


def _minutes(column: pa.ChunkedArray) -> Minutes:
    """Return an integer column as int64; NULL becomes 0 and is masked by the caller."""
    return np.asarray(pc.fill_null(column, 0), dtype=np.int64)


def _is_null(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_null(column), dtype=np.bool_)


def _instants(minutes: Minutes, absent: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(minutes * MINUTE_US, pa.int64(), mask=absent).cast(INSTANT)
