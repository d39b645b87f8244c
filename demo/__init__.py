"""The demonstration: a year of real flights as the stream of upserts it once was.

Owns no state. ``flights`` reads the source and says how the table looks, ``event_times`` says when
things happened, ``stream`` replays them, ``expectation`` says what the table must hold in the end,
and ``comparison`` finds every row where a table differs from that.
"""
