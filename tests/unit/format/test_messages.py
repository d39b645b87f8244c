"""Messages through the protobuf library."""

from __future__ import annotations

import pytest

from memwal_core.format.malformed import MalformedError
from memwal_core.format.messages import parse, unknown_fields
from memwal_core.format.pb import mem_wal_pb2 as pb

UNKNOWN_99 = b"\x9a\x06\x03abc"


def test_a_message_is_filled_and_returned() -> None:
    message = pb.UUID()

    assert parse(message, pb.UUID(uuid=b"id").SerializeToString()) is message
    assert message.uuid == b"id"


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x0a\xff\xff\xff\xff\x0fabc", b"\x0a" * 3])
def test_bytes_that_are_not_a_message_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="not a UUID message"):
        parse(pb.UUID(), data)


def test_unknown_fields_are_kept_and_known_ones_are_not() -> None:
    message = parse(pb.RegionManifest(), pb.RegionManifest(version=7).SerializeToString() + UNKNOWN_99)

    assert unknown_fields(message) == UNKNOWN_99
    assert message.version == 7
    assert unknown_fields(pb.RegionManifest(version=7)) == b""
