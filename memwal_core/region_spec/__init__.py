"""Region specs: how rows map to regions, evaluated column-wise."""
