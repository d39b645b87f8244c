"""Either vocabulary can be printed; files keep ours."""

from __future__ import annotations

import json

import pytest

from memwal_core.vocabulary import SHARD_NAMES, Vocabulary, renamed, word

DOCUMENT = {
    "regions": [{"region_id": "r", "replay_after_wal_id": 1, "value": {"region": "eu"}}],
    "merge_lag_generations": 2,
    "region_specs": [1],
}


@pytest.mark.req("SHD-19")
def test_own_vocabulary_changes_nothing():
    assert renamed(DOCUMENT, Vocabulary.REGION) == DOCUMENT


@pytest.mark.req("SHD-19")
def test_shard_vocabulary_renames_fields_at_every_depth_and_no_values():
    assert renamed(DOCUMENT, Vocabulary.SHARD) == {
        "shards": [{"shard_id": "r", "replay_after_wal_entry_position": 1, "value": {"shard": "eu"}}],
        "merge_lag_generations": 2,
        "shard_specs": [1],
    }
    assert json.dumps(renamed(("region", {"region": (1,)}), Vocabulary.SHARD)) == '["region", {"shard": [1]}]'


@pytest.mark.req("SHD-19")
def test_no_two_of_our_names_become_one():
    assert len(set(SHARD_NAMES.values())) == len(SHARD_NAMES)
    assert not set(SHARD_NAMES) & set(SHARD_NAMES.values())


def test_words_are_translated_one_by_one():
    assert word("region", Vocabulary.SHARD) == "shard"
    assert word("region", Vocabulary.REGION) == "region"
    assert word("merge lag", Vocabulary.SHARD) == "merge lag"
