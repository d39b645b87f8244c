"""Reading a table as Spark DataFrames: pinned on the driver, read in parts by executors."""
