"""`memwal maintain`: the cycle of one table, one round over many, or a service."""
