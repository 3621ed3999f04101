"""Shards on workers: a shared search, local fits, refine rounds, exact passes."""
