"""Everybody who uses a simulated table: each turn is one thing that a process or a person does."""
