"""How a pass of a merge becomes one commit of the base table."""
