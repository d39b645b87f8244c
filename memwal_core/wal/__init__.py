"""The write-ahead log of a region: entries numbered from 1 without holes.

Owns nothing but the names and bytes of WAL entries. Only a region's writer appends; anybody may
read. May import storage and what lies below.
"""

from memwal_core.wal.appender import Appended, WalAppender
from memwal_core.wal.arrow_codec import ArrowCodec
from memwal_core.wal.codec import codec_for_suffix
from memwal_core.wal.entry import EntryShape, WalCodec, WalEntry, noted_field_ids, same_columns
from memwal_core.wal.lance_codec import LANCE_CODEC, entry_file_version
from memwal_core.wal.lance_schema import plain_file
from memwal_core.wal.replay import find_tail, read_entries, read_tail, tail_positions

__all__ = [
    "LANCE_CODEC",
    "Appended",
    "ArrowCodec",
    "EntryShape",
    "WalAppender",
    "WalCodec",
    "WalEntry",
    "codec_for_suffix",
    "entry_file_version",
    "find_tail",
    "noted_field_ids",
    "plain_file",
    "read_entries",
    "read_tail",
    "same_columns",
    "tail_positions",
]
