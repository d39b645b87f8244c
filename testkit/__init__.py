"""Fakes and fault injection for tests; never imported by the rest of the package."""
