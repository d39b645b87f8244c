"""Commands that look at a table and change nothing, but for ``checks --release``."""
