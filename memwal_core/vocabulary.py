"""The two vocabularies of one format: ours, and Lance's newer one, which says shard.

Files keep our names; commands and reports can print either (docs/glossary.md has the pairs).
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class Vocabulary(StrEnum):
    """Which words to print."""

    REGION = "region"
    SHARD = "shard"


SHARD_NAMES = MappingProxyType(
    {
        "region": "shard",
        "regions": "shards",
        "region_id": "shard_id",
        "region_ids": "shard_ids",
        "region_spec_id": "shard_spec_id",
        "region_specs": "shard_specs",
        "region_field_values": "shard_field_values",
        "num_regions": "num_shards",
        "replay_after_wal_id": "replay_after_wal_entry_position",
        "wal_id_last_seen": "wal_entry_position_last_seen",
        "wal_id": "wal_entry_position",
    }
)
"""Our name of a field -> Lance's. Names that are missing here are the same in both."""


def renamed(document: object, vocabulary: Vocabulary) -> object:
    """Return a JSON-able document with the field names of a vocabulary; values stay as they are."""
    if vocabulary is Vocabulary.REGION:
        return document
    if isinstance(document, dict):
        return {SHARD_NAMES.get(key, key): renamed(value, vocabulary) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [renamed(each, vocabulary) for each in document]
    return document


def word(name: str, vocabulary: Vocabulary) -> str:
    """Return one of our words in a vocabulary; words that both share stay."""
    return SHARD_NAMES.get(name, name) if vocabulary is Vocabulary.SHARD else name
