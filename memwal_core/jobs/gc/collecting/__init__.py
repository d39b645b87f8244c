"""Acting on a plan: the only place from which a collection changes a table, and its share by share use."""
