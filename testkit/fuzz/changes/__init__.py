"""From the bytes of a file to hostile ones: blindly, or by the structure of each format. Pure."""
