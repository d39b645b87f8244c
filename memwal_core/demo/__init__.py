"""The demonstration: a year of real flights as the stream of upserts it once was.

Owns no state. ``flights`` reads the source and says how the table looks, ``event_times`` says when
things happened, ``stream`` replays them, ``expectation`` says what the table must hold in the end,
and ``comparison`` finds every row where a table differs from that.
"""

from memwal_core.demo.comparison import ColumnChange, Difference, compare
from memwal_core.demo.expectation import expected_flights
from memwal_core.demo.flights import (
    FLIGHTS_SCHEMA,
    KEY_COLUMNS,
    FlightStatus,
    find_flight_data,
    flights_of_first_days,
    load_flights,
)
from memwal_core.demo.stream import DayBatch, EventKind, flight_events

__all__ = [
    "FLIGHTS_SCHEMA",
    "KEY_COLUMNS",
    "ColumnChange",
    "DayBatch",
    "Difference",
    "EventKind",
    "FlightStatus",
    "compare",
    "expected_flights",
    "find_flight_data",
    "flight_events",
    "flights_of_first_days",
    "load_flights",
]
