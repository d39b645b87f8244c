"""The whole maintenance of a table in the one order in which every job helps the next.

``plan`` decides (pure) and is walked by whoever runs a cycle, in one process (``run``) or as tasks
of a scheduler. Owns no state: each job keeps its own, and the ledger keeps what became of each. May
import the other jobs, the ledger and what lies below.
"""
