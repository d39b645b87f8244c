"""Region specs on the wire: messages to values and back, unknown fields kept."""

from __future__ import annotations

from google.protobuf.message import Message

from memwal_core.pb import mem_wal_pb2 as pb
from memwal_core.region_spec.model import RegionField, RegionSpec


def spec_from_message(message: pb.RegionSpec) -> RegionSpec:
    """Return the spec that a message holds.

    Nothing is judged here: a spec of a newer or foreign version must survive being read and
    rewritten. ``validate_spec`` judges specs that are about to be created.

    Args:
        message: As parsed from the MemWAL index.

    Returns:
        The spec, with the bytes of fields that this version does not know.
    """
    return RegionSpec(
        spec_id=message.spec_id,
        fields=tuple(_field_from_message(field) for field in message.fields),
        unknown=_unknown_bytes(message),
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
        unknown=_unknown_bytes(message),
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


def _unknown_bytes(message: Message) -> bytes:
    """Return what remains of a message on the wire once all known fields are cleared."""
    rest = type(message)()
    rest.CopyFrom(message)
    for known in message.DESCRIPTOR.fields:
        rest.ClearField(known.name)
    return rest.SerializeToString()
