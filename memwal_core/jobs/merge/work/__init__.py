"""The work of a merge in units that this process or executors carry out."""
