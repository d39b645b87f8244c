"""System calls become operations in the order in which they took effect, and none is overlooked."""

from __future__ import annotations

import pytest

from testkit.powercut.operations import Mark, Names, Recording, Resize, Sync, SyncClass, Write
from testkit.powercut.replay import Replay, UnknownCallError
from testkit.powercut.syscalls import unsure_paths

_SECOND_THREAD = "7 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 8"


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _trace(*lines: str) -> list[str]:
    """Write strings and places in hexadecimal digits, as strace does."""
    written = []
    for line in lines:
        parts = line.split("'")
        parts[1::2] = [f'"{_hex(part)}"' for part in parts[1::2]]
        written.append("".join(parts).replace("AT", f"AT_FDCWD<{_hex('/')}>"))
    return written


def _play(*lines: str) -> Recording:
    replay = Replay("/r", "/marks")
    replay.play(_trace(*lines))
    return replay.recording()


def test_file_that_is_written_linked_and_synced() -> None:
    played = _play(
        "7 mkdir('/r/d', 0777) = 0",
        "7 openat(AT, '/r/x', O_WRONLY|O_CREAT|O_EXCL, 0666) = 3",
        "7 write(3<x>, 'abc', 3) = 3",
        "7 writev(3<x>, [{iov_base='de', iov_len=2}, {iov_base='f', iov_len=1}], 2) = 3",
        "7 fsync(3<x>) = 0",
        "7 linkat(AT, '/r/x', AT, '/r/d/y.manifest', 0) = 0",
        "7 unlink('/r/x') = 0",
        "7 openat(AT, '/r', O_RDONLY) = 4",
        "7 fsync(4<r>) = 0",
        "7 ftruncate(3<x>, 1) = 0",
        "7 unlink('/r/missing') = -1 ENOENT (No such file or directory)",
    )
    assert played.operations == (
        Names((((0, "d"), 1),)),
        Names((((0, "x"), 2),)),
        Write(2, 0, b"abc"),
        Write(2, 3, b"def"),
        Sync(2, 4),
        Names((((1, "y.manifest"), 2),)),
        Names((((0, "x"), None),)),
        Sync(0, 7),
        Resize(2, 1),
    )
    assert played.class_of(0) is played.class_of(1) is SyncClass.TABLE_DIRECTORY
    assert played.paths[2] == {"x", "d/y.manifest"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("_versions/1.manifest", SyncClass.TABLE_MANIFEST),
        ("data/1.lance", SyncClass.TABLE_DATA),
        ("manifest", SyncClass.TABLE_DATA),
        ("_mem_wal/a/manifest/1.binpb", SyncClass.REGION_MANIFEST),
        ("_mem_wal/a/wal/1.lance", SyncClass.REGION_DATA),
        ("copy/_mem_wal/a/wal/1.lance", SyncClass.REGION_DATA),
    ],
)
def test_class_of_a_sync_follows_from_every_name_that_the_file_ever_had(path: str, expected: SyncClass) -> None:
    recording = Recording("/r", (), frozenset({0}), {5: frozenset({"staged", path})})
    assert recording.class_of(5) is expected


def test_directory_is_there_for_a_thread_that_finds_it_before_the_call_that_makes_it_has_ended() -> None:
    played = _play(
        _SECOND_THREAD,
        "7 openat(AT, '/r/x', O_WRONLY|O_CREAT|O_EXCL, 0666) = 3",
        "7 mkdir('/r/d', 0777 <unfinished ...>",
        "8 mkdir('/r/d', 0777) = -1 EEXIST (File exists)",
        "8 link('/r/x', '/r/d/x') = 0",
        "8 openat(AT, '/r', O_RDONLY) = 4",
        "8 fsync(4<r>) = 0",
        "7 <... mkdir resumed>) = 0",
        "7 unlink('/r/d/x') = 0",
        "7 rmdir('/r/d') = 0",
        "7 mkdir('/r/d', 0777) = 0",
    )
    assert played.operations == (
        Names((((0, "x"), 1),)),
        Names((((0, "d"), 2),)),
        Names((((2, "x"), 1),)),
        Sync(0, 3),
        Names((((2, "x"), None),)),
        Names((((0, "d"), None),)),
        Names((((0, "d"), 3),)),
    )


def test_sync_covers_only_what_had_ended_when_it_began() -> None:
    played = _play(
        _SECOND_THREAD,
        "7 openat(AT, '/r/x', O_WRONLY|O_CREAT, 0666) = 3",
        "7 write(3<x>, 'abc', 3 <unfinished ...>",
        "8 fdatasync(3<x> <unfinished ...>",
        "7 <... write resumed>) = 3",
        "8 <... fdatasync resumed>) = 0",
        "8 fsync(3<x>) = 0",
    )
    assert played.operations[1:] == (Write(1, 0, b"abc"), Sync(1, 1), Sync(1, 3))


def test_number_of_a_file_that_is_being_closed_may_already_mean_another_one() -> None:
    played = _play(
        _SECOND_THREAD,
        "7 openat(AT, '/r/x', O_WRONLY|O_CREAT, 0666) = 3",
        "7 close(3<x> <unfinished ...>",
        "8 openat(AT, '/r/y', O_WRONLY|O_CREAT, 0666) = 3",
        "7 <... close resumed>) = 0",
        "8 write(3<y>, 'abc', 3) = 3",
    )
    assert played.operations[-1] == Write(2, 0, b"abc")


def test_child_process_has_open_files_of_its_own() -> None:
    played = _play(
        "7 openat(AT, '/marks', O_WRONLY|O_CREAT, 0666) = 3",
        "7 openat(AT, '/r/x', O_WRONLY|O_CREAT, 0666) = 4",
        "7 vfork( <unfinished ...>",
        "8 execve('/bin/true', ['true'], 0x7f /* 3 vars */ <unfinished ...>",
        "7 <... vfork resumed>) = 8",
        "8 <... execve resumed>) = 0",
        "8 openat(AT, '/etc/passwd', O_RDONLY) = 3",
        "8 close(3</etc/passwd>) = 0",
        "8 write(4<pipe>, 'abc', 3) = 3",
        "7 write(3<marks>, '{}', 2) = 2",
        "7 fork() = 9",
        "9 write(4<x>, 'abc', 3) = 3",
    )
    assert played.operations == (Names((((0, "x"), 1),)), Mark({}), Write(1, 0, b"abc"))


def test_writes_go_where_the_offset_is() -> None:
    played = _play(
        "7 openat(AT, '/r/x', O_RDWR|O_CREAT, 0666) = 3",
        "7 write(3<x>, 'abcdef', 6) = 6",
        "7 lseek(3<x>, 2, SEEK_SET) = 2",
        "7 write(3<x>, 'xy', 2) = 1",
        "7 dup(3<x>) = 4",
        "7 write(4<x>, 'z', 1) = 1",
        "7 pwrite64(3<x>, 'q', 1, 9) = 1",
        "7 openat(AT, '/r/x', O_WRONLY|O_APPEND) = 5",
        "7 write(5<x>, '!', 1) = 1",
        "7 openat(AT, '/r/x', O_WRONLY|O_TRUNC) = 6",
    )
    wrote = [Write(1, 0, b"abcdef"), Write(1, 2, b"x"), Write(1, 3, b"z"), Write(1, 9, b"q"), Write(1, 10, b"!")]
    assert played.operations[1:] == (*wrote, Resize(1, 0))


def test_marks_are_no_part_of_the_directory() -> None:
    played = _play(
        "7 openat(AT, '/marks', O_WRONLY|O_CREAT, 0666) = 3",
        '7 write(3<marks>, \'{"ends": "put"}\', 15) = 15',
        "7 openat(AT, '/elsewhere/x', O_WRONLY|O_CREAT, 0666) = 4",
        "7 write(4<x>, 'abc', 3) = 3",
        "7 rename('/elsewhere/x', '/elsewhere/y') = 0",
    )
    assert played.operations == (Mark({"ends": "put"}),)


@pytest.mark.parametrize(
    "call",
    [
        "7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3<x>, 0) = 140000",
        "7 fallocate(3<x>, 0, 0, 4096) = 0",
        "7 copy_file_range(9<y>, NULL, 3<x>, NULL, 5, 0) = 5",
        "7 rename('/r/x', '/elsewhere/x') = 0",
        "7 rename('/elsewhere/x', '/r/y') = 0",
        "7 linkat(AT, '/elsewhere/x', AT, '/r/y', 0) = 0",
    ],
)
def test_call_that_cannot_be_played_back_is_refused(call: str) -> None:
    with pytest.raises(UnknownCallError):
        _play("7 openat(AT, '/r/x', O_RDWR|O_CREAT, 0666) = 3", call)


def test_paths_of_calls_that_a_kill_ended_are_unsure() -> None:
    """A thread was killed in the write of a temporary file: it was there, and no trace said so."""
    lines = _trace(
        "7 write(3</r/x>, 'abc', 3 <unfinished ...>",
        "8 openat(AT, '/r/y', O_WRONLY|O_CREAT, 0666 <unfinished ...>",
        "9 unlink('/r/z' <unfinished ...>",
        "9 <... unlink resumed>) = 0",
        "9 unlink('/r/w') = ?",
        "8 <... openat resumed>) = ?",
        "7 +++ killed by SIGKILL +++",
    )
    assert unsure_paths(lines) >= {"/r/y", "/r/w"}
    assert "/r/z" not in unsure_paths(lines)
    assert unsure_paths(["7 write(3<" + _hex("/r/x") + ">, 3 <unfinished ...>"]) == {"/r/x"}
