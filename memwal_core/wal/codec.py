"""Which codec a WAL has; decided by the region, told by the suffix of its files."""

from __future__ import annotations

from collections.abc import Mapping

from memwal_core.errors import InvalidRequestError
from memwal_core.storage.layout import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX
from memwal_core.wal.arrow_codec import ArrowCodec
from memwal_core.wal.entry import WalCodec
from memwal_core.wal.lance_codec import LanceCodec


def codec_for_suffix(suffix: str, field_ids: Mapping[str, int]) -> WalCodec:
    """Return the codec of a WAL file suffix.

    Args:
        suffix: With the dot.
        field_ids: Top-level column of the base table -> field id; only written, never read.

    Raises:
        InvalidRequestError: This version has no codec for it.
    """
    if suffix == LANCE_WAL_SUFFIX:
        return LanceCodec(field_ids)
    if suffix == ARROW_WAL_SUFFIX:
        return ArrowCodec(field_ids)
    raise InvalidRequestError(
        "this version cannot write WAL entries of this kind",
        remedy="use the writer that made the region",
        suffix=suffix,
        known=(LANCE_WAL_SUFFIX, ARROW_WAL_SUFFIX),
    )
