"""Every row of a view once, in its newest version."""
