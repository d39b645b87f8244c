"""A year of real flights as the stream of upserts it once was."""
