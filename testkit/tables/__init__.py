"""Tables and regions for tests."""
