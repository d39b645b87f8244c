"""Changes within Lance's files and Arrow streams: their structure stays readable, what it says does not."""

from __future__ import annotations

import struct
from dataclasses import replace

from memwal_core.format.bounded import BoundedFile
from memwal_core.format.footer import (
    FILE_FOOTER_BYTES,
    PLACE,
    FileFooter,
    read_file_footer,
    read_manifest_footer,
)
from memwal_core.format.framing import framed, read_framed
from memwal_core.format.memwal_index.codec import decode_details, encode_details
from memwal_core.format.table_manifest import MemWalEntry, replace_mem_wal_entry
from memwal_core.rng import Rng
from testkit.fuzz.changes.blind import change_bytes
from testkit.fuzz.changes.messages import change_message, encode_tree, parse_tree
from testkit.fuzz.changes.values import NUMBERS, hostile_bytes

_INDEX_SECTION = 6
"""Field of a ``Manifest``: where the list of indexes is."""
_LONGS = "<QQQIIHH"


def change_lance_file(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change a data file of Lance: its footer, the messages that describe it, or its pages."""
    what = rng.choice(("footer", "places", "message", "message", "message", "pages", "pages"))
    footer = read_file_footer(data, len(data))
    if what == "footer":
        numbers = list(footer)
        field = rng.randrange(len(numbers))
        limit = 256 ** struct.calcsize("<" + _LONGS[1 + field])
        numbers[field] = rng.choice((*NUMBERS, len(data), len(data) - 1, numbers[field] + 1)) % limit
        return data[:-FILE_FOOTER_BYTES] + FileFooter(*numbers).pack(), f"footer {footer._fields[field]}"
    places = [footer.column_places + number * PLACE.size for number in range(footer.columns)]
    places += [footer.buffer_places + number * PLACE.size for number in range(footer.buffers)]
    place = rng.choice(places)
    start, length = PLACE.unpack_from(data, place)
    if what == "places":
        pair = [start, length]
        pair[rng.randrange(2)] = rng.choice((*NUMBERS, len(data)))
        return data[:place] + PLACE.pack(*pair) + data[place + PLACE.size :], "place of a message"
    if what == "message":
        message, done = change_message(data[start : start + length], rng)
        end = len(data) - FILE_FOOTER_BYTES
        head = data[:place] + PLACE.pack(end, len(message)) + data[place + PLACE.size : end]
        return head + message + data[end:], f"message at {place}: {done}"
    pages, done = change_bytes(data[: footer.columns_start], other[: footer.columns_start], rng)
    return pages[: footer.columns_start].ljust(footer.columns_start, b"\0") + data[
        footer.columns_start :
    ], f"pages {done}"


def change_table_manifest(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change the manifest of a table: its footer, its message, or its list of indexes."""
    del other
    footer = read_manifest_footer(data)
    body = data[: -len(footer.pack())]
    what = rng.choice(("footer", "length", "message", "message", "message", "indexes", "indexes"))
    if what == "footer":
        at = rng.choice((*NUMBERS, len(data), len(body))) % 2**64
        return body + footer._replace(manifest=at).pack(), f"footer = {at}"
    if what == "length":
        at, number = footer.manifest, rng.choice(NUMBERS) % 2**32
        return data[:at] + struct.pack("<I", number) + data[at + 4 :], f"length = {number}"
    file = BoundedFile(len(data), lambda start, length: data[start : start + length], len(data))
    stored = read_framed(file, footer.manifest)
    fields = parse_tree(stored) or []
    listed = next((field for field in fields if field.number == _INDEX_SECTION), None)
    if what == "indexes" and listed is not None:
        section, done = change_message(read_framed(file, int(listed.value)), rng)  # type: ignore[arg-type]
        listed.value = len(body)
        body, stored = body + framed(section), encode_tree(fields)
        done = f"indexes: {done}"
    else:
        stored, done = change_message(stored, rng)
    return body + framed(stored) + footer._replace(manifest=len(body)).pack(), done


def change_index_details(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change the details of the MemWAL index in the manifest of a table."""
    del other
    done = ""

    def change(entry: MemWalEntry) -> MemWalEntry:
        nonlocal done
        if rng.random() < 0.1:
            payload, done = hostile_bytes(entry.payload, rng)
        else:
            payload, done = change_message(entry.payload, rng)
        return MemWalEntry(entry.index_id, payload)

    return replace_mem_wal_entry(data, change), done


def change_inline_snapshot(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change the region snapshot within the MemWAL index of a table."""
    done = ""

    def change(entry: MemWalEntry) -> MemWalEntry:
        nonlocal done
        details = decode_details(entry.payload)
        snapshot = details.inline_snapshots or b""
        changed, done = (
            change_lance_file(snapshot, other, rng) if rng.random() < 0.8 else change_bytes(snapshot, other, rng)
        )
        return MemWalEntry(
            entry.index_id, encode_details(replace(details, inline_snapshots=changed), base=entry.payload)
        )

    return replace_mem_wal_entry(data, change), done


def change_arrow_stream(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change numbers in the messages of an Arrow stream, or the values behind them."""
    messages, at = [], 0
    while at + 8 <= len(data):
        size = struct.unpack_from("<i", data, at + 4)[0]
        if size <= 0:
            break
        messages.append((at, size))
        break_at = data.find(b"\xff\xff\xff\xff", at + 8 + size)
        if break_at < 0:
            break
        at = break_at
    changed = bytearray(data)
    done = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        start, size = rng.choice(messages) if rng.random() < 0.7 else (0, len(data) - 8)
        width = rng.choice((2, 4, 8))
        place = min(start + 8 + rng.randrange(max(1, size)) // width * width, len(data) - width)
        number = rng.choice((*NUMBERS, len(data), 2**32 - rng.randrange(1, 64), rng.randrange(64))) % 256**width
        changed[place : place + width] = number.to_bytes(width, "little")
        done.append(f"{width} bytes at {place} = {number}")
    del other
    return bytes(changed), "; ".join(done)
