"""Protobuf messages through the protobuf library: reading untrusted bytes, and keeping unknown fields."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from memwal_core.format.malformed import MalformedError

M = TypeVar("M", bound=Message)


def parse(message: M, data: bytes) -> M:
    """Fill an empty message from its bytes, and return it.

    Raises:
        MalformedError: The bytes are not such a message.
    """
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedError(f"{len(data)} bytes are not a {type(message).__name__} message") from error
    return message


def unknown_fields(message: Message) -> bytes:
    """Return the bytes of the fields that the message's type does not have; merge them back when rewriting it."""
    rest = type(message)()
    rest.CopyFrom(message)
    for known in message.DESCRIPTOR.fields:
        rest.ClearField(known.name)
    return rest.SerializeToString()
