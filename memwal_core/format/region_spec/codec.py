"""Region specs on the wire: messages to values and back, unknown fields kept."""

from __future__ import annotations

from memwal_core.format.messages import unknown_fields
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_spec.model import RegionField, RegionSpec


def spec_from_message(message: pb.RegionSpec) -> RegionSpec:
    """Return the spec that a message holds, with the bytes of unknown fields.

    Nothing is validated here: a spec of a newer or foreign version must survive being read and
    rewritten. ``validate_spec`` judges specs that are about to be created.
    """
    return RegionSpec(
        spec_id=message.spec_id,
        fields=tuple(_field_from_message(field) for field in message.fields),
        unknown=unknown_fields(message),
    )


def spec_to_message(spec: RegionSpec) -> pb.RegionSpec:
    """Return the message of a spec; the inverse of ``spec_from_message``."""
    message = pb.RegionSpec(spec_id=spec.spec_id, fields=[_field_to_message(field) for field in spec.fields])
    message.MergeFromString(spec.unknown)
    return message


def _field_from_message(message: pb.RegionField) -> RegionField:
    return RegionField(
        field_id=message.field_id,
        source_ids=tuple(message.source_ids),
        transform=message.transform if message.HasField("transform") else None,
        expression=message.expression if message.HasField("expression") else None,
        result_type=message.result_type,
        parameters=dict(message.parameters),
        unknown=unknown_fields(message),
    )


def _field_to_message(field: RegionField) -> pb.RegionField:
    message = pb.RegionField(
        field_id=field.field_id,
        source_ids=field.source_ids,
        transform=field.transform,
        expression=field.expression,
        result_type=field.result_type,
        parameters=field.parameters,
    )
    message.MergeFromString(field.unknown)
    return message
