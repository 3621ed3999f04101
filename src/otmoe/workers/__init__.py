"""Tasks over an executor."""
