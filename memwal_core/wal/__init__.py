"""The write-ahead log of a region: entries numbered from 1 without holes.

Owns only the names and bytes of WAL entries. Only a region's writer appends; every process may read.
"""

from memwal_core.format.lance_file.schema import plain_file
from memwal_core.wal.appender import Appended, WalAppender
from memwal_core.wal.arrow_codec import ArrowCodec
from memwal_core.wal.codec import codec_for_suffix, codec_of_region, is_fence, rows_wait_since
from memwal_core.wal.damage import apparent_damage_of_entry, damage_of_entry
from memwal_core.wal.entry import EntryShape, WalCodec, WalEntry, noted_column_ids, same_columns
from memwal_core.wal.lance_codec import LanceCodec, entry_file_version
from memwal_core.wal.replay import ends_in_hole, find_tail, read_entries, read_tail, refuse_hole, tail_positions

__all__ = [
    "Appended",
    "ArrowCodec",
    "EntryShape",
    "LanceCodec",
    "WalAppender",
    "WalCodec",
    "WalEntry",
    "apparent_damage_of_entry",
    "codec_for_suffix",
    "codec_of_region",
    "damage_of_entry",
    "ends_in_hole",
    "entry_file_version",
    "find_tail",
    "is_fence",
    "noted_column_ids",
    "plain_file",
    "read_entries",
    "read_tail",
    "refuse_hole",
    "rows_wait_since",
    "same_columns",
    "tail_positions",
]
