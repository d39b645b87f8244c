"""Hostile bytes: whatever a table's files say, whoever looks at it gets rows or an error of ours."""
