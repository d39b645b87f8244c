"""What all readers and writers of Lance's bytes share: footers, varints, framed and protobuf messages.

Bytes from a store are untrusted: each position and length is compared with what there is before anything is
sliced or allocated. What does not fit is a ``MalformedError``; callers turn it into a ``CorruptionError`` that
names the file and a remedy.
"""
