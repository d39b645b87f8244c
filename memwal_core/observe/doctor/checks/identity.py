"""Which keys belong to which region: specs known, values unique, no key in two regions."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding, Severity
from memwal_core.region.spec import MANUAL_SPEC_ID, decode_region_value
from memwal_core.region.values import states_its_value

_SHOWN = 5
_RISK = "newer and older rows of one key are merged in any order, so updates are lost and deleted rows return"


def specs_are_known(seen: Examination) -> Iterator[Finding]:
    """Each region names a spec of the table that fits its values; spec 0 stands for a region made by hand."""
    if seen.state is None or seen.state.details is None:
        return
    specs = {spec.spec_id: spec for spec in seen.state.details.region_specs}
    for region, manifest in seen.readable():
        spec = specs.get(manifest.region_spec_id)
        problem = None
        if spec is not None:
            try:
                decode_region_value(spec, manifest.region_field_values)
            except (CorruptionError, InvalidRequestError) as error:
                problem = error.what
        elif manifest.region_spec_id != MANUAL_SPEC_ID:
            problem = "the table has no such spec"
        elif manifest.region_field_values:
            problem = "spec 0 means made by hand, but the region has values of a spec"
        if problem is not None:
            yield Finding(
                "region-spec-unknown",
                Severity.CRITICAL,
                "a region does not match the region spec that it names",
                {
                    "region_spec_id": manifest.region_spec_id,
                    "known": sorted(specs),
                    "field_ids": sorted(manifest.region_field_values),
                    "problem": problem,
                },
                "readers cannot tell which keys the region holds, and may skip it",
                "keep the region, and find out which writer wrote the manifest or which commit removed the spec",
                region.region_id,
            )


def region_values_are_unique(seen: Examination) -> Iterator[Finding]:
    """No two regions have the same value of one spec.

    Lance's own writer makes regions that name a spec but have no values; only their keys tell what they hold.
    """
    owners: dict[tuple[int, tuple[tuple[str, bytes], ...]], list[str]] = {}
    for region, manifest in seen.readable():
        if manifest.region_spec_id != MANUAL_SPEC_ID and states_its_value(manifest):
            value = tuple(sorted(manifest.region_field_values.items()))
            owners.setdefault((manifest.region_spec_id, value), []).append(str(region.region_id))
    for (spec_id, value), regions in owners.items():
        if len(regions) > 1:
            yield Finding(
                "region-value-duplicate",
                Severity.CRITICAL,
                "two regions have the same region value",
                {
                    "subject": regions[0],
                    "regions": regions,
                    "region_spec_id": spec_id,
                    "value": {name: raw.hex() for name, raw in value},
                },
                _RISK,
                "stop all writers of the table, let one of the regions take no more rows, and merge both",
            )


def keys_live_in_one_region(seen: Examination) -> Iterator[Finding]:
    """No sampled key occurs in two regions."""
    samples = [
        region.keys.append_column("_region", pa.array([number] * region.keys.num_rows, pa.int32()))
        for number, region in enumerate(seen.regions)
        if region.keys is not None and region.keys.num_rows
    ]
    if len(samples) < 2:
        return
    keys = pa.concat_tables(samples)
    names = [name for name in keys.column_names if name != "_region"]
    grouped = keys.group_by(names).aggregate([("_region", "count_distinct"), ("_region", "min"), ("_region", "max")])
    shared = grouped.filter(pc.greater(grouped.column("_region_count_distinct"), 1))
    if not shared.num_rows:
        return
    numbers = {*shared.column("_region_min").to_pylist(), *shared.column("_region_max").to_pylist()}
    yield Finding(
        "key-in-two-regions",
        Severity.CRITICAL,
        "the same key was written to two regions",
        {
            "shared_keys": shared.num_rows,
            "sampled_keys": grouped.num_rows,
            "examples": [
                {name: str(value) for name, value in row.items()}
                for row in shared.select(names).slice(0, _SHOWN).to_pylist()
            ],
            "regions": [str(seen.regions[number].region_id) for number in sorted(numbers)],
        },
        _RISK,
        "stop all writers of the table, and find out which one routes wrongly before anything is merged",
    )


def rows_are_routed_right(seen: Examination) -> Iterator[Finding]:
    """The spec computes, for every sampled row, the value of the region that holds the row."""
    for region in seen.regions:
        if region.own_value is None or region.region_values is None:
            continue
        others = [value for value in region.region_values if value != region.own_value]
        if others:
            yield Finding(
                "row-in-wrong-region",
                Severity.CRITICAL,
                "a region holds rows that its spec sends elsewhere",
                {"region_value": region.own_value, "rows_belong_to": others[:_SHOWN]},
                "readers that look for a key in its region miss these rows; " + _RISK,
                "stop the writer that routes wrongly, and write the rows again with one that routes correctly",
                region.region_id,
            )
