"""The MemWAL index of early releases is recognised, shown and checked, never taken for today's."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import CorruptionError
from memwal_core.format.memwal_index.codec import LegacyIndexError, decode_details, is_legacy_payload
from memwal_core.format.memwal_index.legacy import LegacyIndex, LegacyMemWal, LegacyState, WalIds, legacy_problems
from memwal_core.format.memwal_index.legacy_codec import decode_legacy, decode_wal_ids
from memwal_core.format.pb import legacy_mem_wal_pb2 as legacy_pb
from memwal_core.format.pb import mem_wal_pb2 as pb

OPEN, SEALED, FLUSHED, MERGED = LegacyState
Details = legacy_pb.MemWalIndexDetails


def ids(**form):
    return legacy_pb.U64Segment(**form).SerializeToString()


RANGE = ids(range=legacy_pb.U64Segment.Range(start=0, end=10))


def mem_wal(region="orders", generation=1, state=Details.MemWal.OPEN, **values):
    defaults = {
        "mem_table_location": "memory://node-1/orders",
        "wal_location": "s3://bucket/wal/orders",
        "wal_entries": RANGE,
        "owner_id": "node-1",
        "last_updated_dataset_version": 4,
    }
    return Details.MemWal(
        id=Details.MemWalId(region=region, generation=generation), state=state, **{**defaults, **values}
    )


def payload(*entries):
    return Details(mem_wal_list=entries).SerializeToString()


@pytest.mark.req("LEG-01", "LEG-02", "LEG-03", "LEG-05")
def test_message_has_the_published_fields_and_nesting():
    def numbers(message):
        return {field.name: (field.number, field.type) for field in message.DESCRIPTOR.fields}

    string, u64, blob, message, enum = (getattr(Details.DESCRIPTOR.fields[0], f"TYPE_{name}") for name in (
        "STRING", "UINT64", "BYTES", "MESSAGE", "ENUM"))  # fmt: skip
    assert numbers(Details) == {"mem_wal_list": (1, message)}
    assert numbers(Details.MemWalId) == {"region": (1, string), "generation": (2, u64)}
    assert numbers(Details.MemWal) == {
        "id": (1, message),
        "mem_table_location": (2, string),
        "wal_location": (3, string),
        "wal_entries": (4, blob),
        "state": (5, enum),
        "owner_id": (6, string),
        "last_updated_dataset_version": (7, u64),
    }
    nested = {Details.MemWal.DESCRIPTOR.full_name, Details.MemWal.State.DESCRIPTOR.full_name}
    assert nested == {"memwal.legacy.MemWalIndexDetails.MemWal", "memwal.legacy.MemWalIndexDetails.MemWal.State"}


@pytest.mark.req("LEG-04")
def test_states_have_the_published_numbers():
    assert dict(Details.MemWal.State.items()) == {"OPEN": 0, "SEALED": 1, "FLUSHED": 2, "MERGED": 3}


@pytest.mark.req("LEG-06", "LEG-07")
def test_both_layouts_are_told_apart_before_decoding():
    old = payload(mem_wal())
    new = pb.MemWalIndexDetails(snapshot_ts_millis=1, num_regions=2).SerializeToString()
    assert is_legacy_payload(old)
    assert not is_legacy_payload(new)
    with pytest.raises(LegacyIndexError):
        decode_details(old)
    # What would happen without the look at the wire: an empty index, and everything merged again.
    assert not pb.MemWalIndexDetails.FromString(old).merged_generations


@pytest.mark.req("LEG-16", "LEG-23", "LEG-29", "LEG-25")
def test_entry_is_shown_with_everything_it_holds_and_nothing_is_opened():
    index = decode_legacy(payload(mem_wal(state=Details.MemWal.FLUSHED)), version=5)
    (entry,) = index.mem_wals
    assert entry == LegacyMemWal(
        "orders", 1, FLUSHED, "memory://node-1/orders", "s3://bucket/wal/orders", WalIds(((0, 9),)), "node-1", 4
    )
    assert entry.to_dict()["wal_entries"] == "0-9"


def test_bytes_of_no_layout_are_corrupt():
    with pytest.raises(CorruptionError):
        decode_legacy(b"\x0a\xff", 1)
    with pytest.raises(CorruptionError):
        decode_legacy(payload(mem_wal(state=9)), 1)


class TestWalIds:
    """All forms of the id segment decode to the same ids."""

    FORMS: ClassVar = {
        "range with holes, 16 bit": lambda: ids(
            range_with_holes=legacy_pb.U64Segment.RangeWithHoles(
                start=0,
                end=10,
                holes=legacy_pb.EncodedU64Array(
                    u16_array=legacy_pb.EncodedU64Array.U16Array(base=4, offsets=np.array([0, 1], "<u2").tobytes())
                ),
            )
        ),
        "range with bitmap": lambda: ids(
            range_with_bitmap=legacy_pb.U64Segment.RangeWithBitmap(
                start=0, end=10, bitmap=np.packbits([1, 1, 1, 1, 0, 0, 1, 1, 1, 1], bitorder="little").tobytes()
            )
        ),
        "sorted array, 32 bit": lambda: ids(
            sorted_array=legacy_pb.EncodedU64Array(
                u32_array=legacy_pb.EncodedU64Array.U32Array(
                    base=0, offsets=np.array([0, 1, 2, 3, 6, 7, 8, 9], "<u4").tobytes()
                )
            )
        ),
        "array, 64 bit": lambda: ids(
            array=legacy_pb.EncodedU64Array(
                u64_array=legacy_pb.EncodedU64Array.U64Array(values=np.array([0, 1, 2, 3, 6, 7, 8, 9], "<u8").tobytes())
            )
        ),
    }

    @pytest.mark.req("LEG-18")
    def test_range_is_decoded(self):
        found = decode_wal_ids(RANGE)
        assert found == WalIds(((0, 9),))
        assert (found.count, found.holes, str(found)) == (10, (), "0-9")

    @pytest.mark.req("LEG-19")
    @pytest.mark.parametrize("form", FORMS)
    def test_every_form_shows_the_hole(self, form):
        found = decode_wal_ids(self.FORMS[form]())
        assert found == WalIds(((0, 3), (6, 9)))
        assert found.holes == ((4, 5),)
        assert found.count == 8
        assert str(found) == "0-3, 6-9"

    def test_no_entries_are_none(self):
        assert decode_wal_ids(b"") == WalIds(())
        assert str(WalIds(())) == "none"

    @pytest.mark.parametrize(
        "damage",
        [
            b"\xff",
            ids(range=legacy_pb.U64Segment.Range(start=5, end=1)),
            ids(range_with_bitmap=legacy_pb.U64Segment.RangeWithBitmap(start=0, end=100, bitmap=b"\x01")),
            ids(
                array=legacy_pb.EncodedU64Array(u64_array=legacy_pb.EncodedU64Array.U64Array(values=b"123")),
            ),
            ids(
                range_with_holes=legacy_pb.U64Segment.RangeWithHoles(
                    start=0,
                    end=2,
                    holes=legacy_pb.EncodedU64Array(
                        u16_array=legacy_pb.EncodedU64Array.U16Array(base=7, offsets=b"\0\0")
                    ),
                )
            ),
        ],
    )
    def test_damaged_ids_are_corrupt_and_hide_nothing_else(self, damage):
        with pytest.raises(CorruptionError):
            decode_wal_ids(damage)
        entry = decode_legacy(payload(mem_wal(wal_entries=damage)), 5).mem_wals[0]
        assert entry.wal_entries is None
        assert entry.owner_id == "node-1"

    @pytest.mark.req("LEG-18", "LEG-19")
    @settings(derandomize=True, deadline=None, max_examples=100)
    @given(st.sets(st.integers(0, 300), min_size=1))
    def test_bitmap_and_array_agree_for_any_ids(self, wanted):
        start, end = min(wanted), max(wanted) + 1
        bits = np.zeros(end - start, np.uint8)
        bits[[number - start for number in wanted]] = 1
        bitmap = ids(
            range_with_bitmap=legacy_pb.U64Segment.RangeWithBitmap(
                start=start, end=end, bitmap=np.packbits(bits, bitorder="little").tobytes()
            )
        )
        values = np.array(sorted(wanted), "<u8").tobytes()
        array = ids(sorted_array=legacy_pb.EncodedU64Array(u64_array=legacy_pb.EncodedU64Array.U64Array(values=values)))
        found = decode_wal_ids(bitmap)
        assert found == decode_wal_ids(array)
        assert {n for first, last in found.spans for n in range(first, last + 1)} == wanted


class TestRules:
    """What the early layout promised, checked over one version and over several."""

    GOOD = (
        LegacyMemWal("a", 3, MERGED, "memory://x", "s3://w/3", WalIds(()), "n", 4),
        LegacyMemWal("a", 4, FLUSHED, "memory://x", "s3://w/4", WalIds(()), "n", 4),
        LegacyMemWal("a", 5, SEALED, "memory://x", "s3://w/5", WalIds(()), "n", 5),
        LegacyMemWal("a", 6, OPEN, "memory://x", "s3://w/6", WalIds(()), "n", 5),
        LegacyMemWal("b", 1, OPEN, "memory://x", "s3://w/b", WalIds(()), "n", 1),
    )

    def problems(self, *entries, older=()):
        return list(legacy_problems(LegacyIndex(5, entries), older))

    def changed(self, position, **values):
        return [replace(each, **values) if number == position else each for number, each in enumerate(self.GOOD)]

    @pytest.mark.req("LEG-08", "LEG-09", "LEG-10", "LEG-11")
    def test_sound_index_has_no_problem(self):
        assert self.problems(*self.GOOD) == []

    @pytest.mark.req("LEG-14")
    def test_generation_that_is_missing_in_between_is_reported(self):
        (problem,) = self.problems(*(self.GOOD[:1] + self.GOOD[2:]))
        assert "do not rise by one" in problem

    @pytest.mark.req("LEG-15")
    def test_two_open_generations_of_a_region_are_reported(self):
        (problem,) = self.problems(*self.changed(2, state=OPEN))
        assert "exactly one OPEN generation, but has [5, 6]" in problem

    @pytest.mark.req("LEG-15")
    def test_region_without_open_generation_is_reported(self):
        (problem,) = self.problems(*self.changed(4, state=SEALED))
        assert "but has []" in problem

    @pytest.mark.req("LEG-15", "LEG-24")
    def test_open_generation_below_a_newer_one_is_reported(self):
        entries = self.changed(2, state=OPEN)
        entries[3] = replace(entries[3], state=SEALED)
        (problem,) = self.problems(*entries)
        assert "although 6 is newer" in problem

    @pytest.mark.req("LEG-23")
    def test_update_by_a_version_that_does_not_exist_yet_is_reported(self):
        (problem,) = self.problems(*self.changed(0, last_updated_dataset_version=6))
        assert "last updated by version 6" in problem

    @pytest.mark.req("LEG-17")
    def test_wal_location_that_changed_is_reported(self):
        older = [LegacyIndex(4, tuple(self.changed(3, wal_location="s3://elsewhere")))]
        (problem,) = self.problems(*self.GOOD, older=older)
        assert "changed from s3://elsewhere to s3://w/6" in problem

    @pytest.mark.req("LEG-12")
    @pytest.mark.parametrize("old", list(LegacyState))
    @pytest.mark.parametrize("new", list(LegacyState))
    def test_states_go_one_step_forward_between_consecutive_versions(self, old, new):
        step = list(LegacyState).index(new) - list(LegacyState).index(old)
        before = LegacyIndex(4, (LegacyMemWal("a", 1, old, "m", "w", None, "n", 1),))
        after = LegacyMemWal("a", 1, new, "m", "w", None, "n", 1)
        went = [text for text in self.problems(after, older=[before]) if "went from" in text]
        assert bool(went) == (step not in (0, 1))

    @pytest.mark.req("LEG-12")
    def test_steps_of_versions_that_were_cleaned_up_are_not_missed(self):
        before = LegacyIndex(2, (LegacyMemWal("a", 1, OPEN, "m", "w", None, "n", 1),))
        after = LegacyMemWal("a", 1, MERGED, "m", "w", None, "n", 1)
        assert not [text for text in self.problems(after, older=[before]) if "went from" in text]
