"""Answers for people: why does a job act on a region, or not.

Owns no state. May import every other maintenance package and what lies below.
"""
