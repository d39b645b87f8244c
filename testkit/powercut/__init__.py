"""Power cuts: what a real process did to the disk, recorded, and every state that a cut may have left of it.

**Recording.** A process that runs the real code, Lance's included, is traced with ``strace``. Its system calls become a
list of operations: bytes written, files cut to a size, names given and taken, syncs, and marks of what the process had
acknowledged. Played back whole, they must give exactly the directory that the process left, so no way of writing is
missed.

**Model.** A cut state is a place in that list and a choice of what of the earlier operations reached the disk:

- Bytes of a file are on the disk if a sync of that file began after they were written and ended before the cut. Others
  survive in any part: all, none, a beginning, zeros in their place, or some pages.
- A name (given by a new file, a link, a directory; taken by a removal) is on the disk if a sync of its *directory*
  began after it and ended before the cut. Others survive or not, each independently of names elsewhere and of bytes.
  Of the changes of one name, a beginning survives; so of the removals in one directory. A rename takes the old name
  and gives the new one, or does neither.
- A sync of a file says nothing of its name, and one of a directory nothing of that directory's own name.

This is what POSIX promises and little more. Journals of ext4 and xfs write names in order, so most real cuts leave
milder states; the logs that btrfs, f2fs and fast commits of ext4 write at a sync do not keep that order for new names.
Removals of one directory are in order on all of them. Not modelled, because no file system that holds tables does it: a
rename that survives in half, synced bytes that change, a name that leads to another file.
"""
