"""Values at and beyond the edges of what a field may hold."""

from __future__ import annotations

from memwal_core.rng import Rng

NUMBERS = (
    0, 1, 2, 127, 128, 255, 256, 65_535, 65_536, 5_000_000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 10**10, 2**40,
    2**53, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1,
)  # fmt: skip
"""Unsigned numbers; from 2^63 on they are negative where a field is signed."""

LONG = 100_000
NEIGHBOUR = "../neighbour.lance"
"""A table beside the one that is attacked, which nothing may touch or show."""

TEXTS = (
    "", "\0", "a\0b", "\ud800", "\x1b[31m", "..", ".", "/", "../..", "wal", "manifest", "_mem_wal", NEIGHBOUR,
    f"../../{NEIGHBOUR}", f"../../../{NEIGHBOUR}/_mem_wal", "/etc/passwd", "file:///etc/passwd", "s3://elsewhere/x",
    "{{ conn.x.password }}", "<script>alert(1)</script>", "%2e%2e%2f", "a" * 255, "a" * 256, "\N{FULLWIDTH DIGIT ONE}",
    "-1", "1", "true", "null", "NaN", "1e999", "00000000-0000-0000-0000-000000000000", "int64", "list<int64>",
    "9" * 5_000, "é" * 300, "col0 " * 5_000, "(" * 5_000, "abs(" * 2_000, "99999999_gen_99999999999999999999",
)  # fmt: skip

TIMES = (
    "0001-01-01T00:00:00+00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999+00:00",
    "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00", "2026-01-01", "1970-01-01T00:00:00Z", "-1",
    "2500-01-01T00:00:00Z",
)  # fmt: skip


def hostile_text(rng: Rng) -> str:
    """Return a text."""
    return rng.choice((*TEXTS, *TIMES, "x" * LONG))


def hostile_bytes(content: bytes, rng: Rng) -> tuple[bytes, str]:
    """Return bytes in place of others, and what they are."""
    text = hostile_text(rng)
    choices = {
        "a text": text.encode(errors="surrogatepass"),
        f"text {text[:40]!r}": text.encode(errors="surrogatepass"),
        "nothing": b"",
        "half of it": content[: len(content) // 2],
        "twice": content * 2,
        "reversed": content[::-1],
        "random bytes": rng.randbytes(max(1, min(len(content), LONG))),
        "15 bytes": (content + bytes(15))[:15],
        "zeros": bytes(len(content)),
        "ones": b"\xff" * len(content),
    }
    what = rng.choice(list(choices))
    return choices[what], what
