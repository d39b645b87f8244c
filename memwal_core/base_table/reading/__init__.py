"""Reading one version of a base table and the files of its versions."""
