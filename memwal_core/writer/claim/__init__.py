"""Claiming a region, keeping it, and taking it over."""
