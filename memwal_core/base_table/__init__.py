"""The base table: versions, merge progress, strict commits. The only package that commits to it."""
