"""The flights as a stream of upserts, in the order in which things were known.

The day before a flight, its schedule is written. When it departs, its row is written again with
what is known then, and once more when it has landed. A cancelled flight gets a ``cancelled``
update at its scheduled departure instead, and a flight whose landing was never recorded gets none.
Each row is the whole row as known at that moment, because an upsert replaces it.

A day runs from midnight to midnight of New York standard time, in summer too. Within a day come
the schedule of the next day, the departures, then the landings, each in order of time. For one
flight, later events come strictly later in the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from demo.flights.event_times import DAY_US, INSTANT, MINUTE_US, date_days
from demo.flights.source import FLIGHTS_SCHEMA, FlightStatus
from memwal_core.errors import InvalidRequestError

DEFAULT_BATCH_ROWS = 2_000
"""More than any day has flights: one batch per day and kind of event."""

_MIDNIGHT_US = 5 * 60 * MINUTE_US  # midnight of New York standard time, after midnight UTC

# What nobody knows yet at an event: these columns are NULL in its rows. The aircraft is assigned at departure.
_UNKNOWN_BEFORE_LANDING = ("arr_time", "arr_delay", "air_time")
_UNKNOWN_BEFORE_DEPARTURE = ("dep_time", "dep_delay", "tailnum", *_UNKNOWN_BEFORE_LANDING)

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

_Indices = npt.NDArray[np.int64]


class EventKind(StrEnum):
    """What a batch tells about its flights; the order of definition is their order within a day."""

    SCHEDULE = "schedule"
    DEPARTURE = "departure"
    LANDING = "landing"


@dataclass(frozen=True, slots=True)
class DayBatch:
    """Upserts of one kind from one day.

    Attributes:
        sequence: Position in the stream from 0. The same flights and batch size give the same batches, so that
            a reader who stopped can go on where it was.
        day: The day on which the events happened.
        kind: What happened. Cancellations are among the departures.
        rows: At least one row of ``FLIGHTS_SCHEMA`` in order of ``updated_at``; no key twice.
    """

    sequence: int
    day: date
    kind: EventKind
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class _Events:
    """All events of one kind: rows in the order of the source, and the order in which they happened."""

    kind: EventKind
    rows: pa.Table
    order: _Indices
    days: _Indices  # of the events in that order, so that it never decreases


def flight_events(flights: pa.Table, *, max_batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[DayBatch]:
    """Replay flights as upserts.

    The whole year is 1,001,615 rows and takes about a second. Select the flights first if only some are wanted:
    a selection gives exactly its rows of the whole stream, in the same order.

    Args:
        flights: Rows as ``load_flights`` returns them, or any selection of them.
        max_batch_rows: Most rows of a batch, at least 1.

    Returns:
        The batches, made one at a time.

    Raises:
        InvalidRequestError: ``max_batch_rows`` is below 1.
    """
    if max_batch_rows < 1:
        raise InvalidRequestError(
            "a batch needs at least one row", remedy="ask for 1 or more", max_batch_rows=max_batch_rows
        )
    flights = flights.combine_chunks()
    return _batches((_schedules(flights), _departures(flights), _landings(flights)), max_batch_rows)


def _batches(kinds: tuple[_Events, ...], max_batch_rows: int) -> Iterator[DayBatch]:
    runs = sorted(
        (int(day), rank, start, stop)
        for rank, events in enumerate(kinds)
        for day, start, stop in _day_runs(events.days)
    )
    sequence = 0
    for day, rank, start, stop in runs:
        events = kinds[rank]
        for first in range(start, stop, max_batch_rows):
            chosen = events.order[first : min(first + max_batch_rows, stop)]
            yield DayBatch(sequence, _to_date(day), events.kind, events.rows.take(chosen))
            sequence += 1


def _day_runs(days: _Indices) -> Iterator[tuple[int, int, int]]:
    """Yield each day with the range of its events."""
    values, starts = np.unique(days, return_index=True)
    stops = np.append(starts, len(days))[1:]
    yield from zip(values.tolist(), starts.tolist(), stops.tolist(), strict=True)


def _schedules(flights: pa.Table) -> _Events:
    published = (date_days(flights) - 1) * DAY_US + _MIDNIGHT_US
    rows = _rows_known(
        flights,
        _UNKNOWN_BEFORE_DEPARTURE,
        status=pa.repeat(FlightStatus.SCHEDULED.value, flights.num_rows),
        updated_at=pa.array(published).cast(INSTANT),
    )
    due = _microseconds(flights["scheduled_at"])
    order = np.lexsort((due, published))
    return _Events(EventKind.SCHEDULE, rows, order, _day_of(published[order]))


def _departures(flights: pa.Table) -> _Events:
    cancelled = pc.is_null(flights["departed_at"])
    happened = pc.coalesce(flights["departed_at"], flights["scheduled_at"])
    status = pc.if_else(cancelled, FlightStatus.CANCELLED.value, FlightStatus.DEPARTED.value)
    rows = _rows_known(flights, _UNKNOWN_BEFORE_LANDING, status=status, updated_at=happened)
    return _in_order_of_time(EventKind.DEPARTURE, rows)


def _landings(flights: pa.Table) -> _Events:
    landed = flights.filter(pc.is_valid(flights["landed_at"]))
    status = pa.repeat(FlightStatus.LANDED.value, landed.num_rows)
    rows = _rows_known(landed, (), status=status, updated_at=landed["landed_at"])
    return _in_order_of_time(EventKind.LANDING, rows)


def _in_order_of_time(kind: EventKind, rows: pa.Table) -> _Events:
    happened = _microseconds(rows["updated_at"])
    order = np.argsort(happened, kind="stable")
    return _Events(kind, rows, order, _day_of(happened[order]))


def _rows_known(flights: pa.Table, unknown: tuple[str, ...], **event: pa.Array) -> pa.Table:
    """Return the target rows without copying what is known; ``event`` brings status and updated_at."""
    columns = []
    for field in FLIGHTS_SCHEMA:
        if field.name in unknown:
            columns.append(pa.nulls(flights.num_rows, field.type))
        else:
            columns.append(event[field.name] if field.name in event else flights[field.name])
    return pa.Table.from_arrays(columns, schema=FLIGHTS_SCHEMA)


def _microseconds(instants: pa.ChunkedArray) -> _Indices:
    return np.asarray(instants.cast(pa.int64()), dtype=np.int64)


def _day_of(instants_us: _Indices) -> _Indices:
    return (instants_us - _MIDNIGHT_US) // DAY_US


def _to_date(day: int) -> date:
    return date.fromordinal(_EPOCH_ORDINAL + day)
