"""What the table must hold when every event was applied, told from the source and not from the stream."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from demo.flights.source import FLIGHTS_SCHEMA, KEY_COLUMNS, SOURCE_SCHEMA, FlightStatus


def expected_flights(flights: pa.Table) -> pa.Table:
    """Return the final row of each flight.

    The recorded clock times alone decide: with an arrival time it landed, with only a departure time it
    departed, with neither it was cancelled.

    Args:
        flights: Rows as ``load_flights`` returns them, or the selection that was replayed.

    Returns:
        One row of ``FLIGHTS_SCHEMA`` per flight, sorted by ``KEY_COLUMNS``.
    """
    landed = pc.is_valid(flights["arr_time"])
    departed = pc.is_valid(flights["dep_time"])
    status = pc.case_when(
        pc.make_struct(landed, departed, field_names=["landed", "departed"]),
        FlightStatus.LANDED.value,
        FlightStatus.DEPARTED.value,
        FlightStatus.CANCELLED.value,
    )
    updated_at = pc.case_when(
        pc.make_struct(landed, departed, field_names=["landed", "departed"]),
        flights["landed_at"],
        flights["departed_at"],
        flights["scheduled_at"],
    )
    columns = [*flights.select(SOURCE_SCHEMA.names).columns, status, updated_at]
    final = pa.Table.from_arrays(columns, schema=FLIGHTS_SCHEMA)
    return final.sort_by([(name, "ascending") for name in KEY_COLUMNS])
