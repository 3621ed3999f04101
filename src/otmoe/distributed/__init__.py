"""Shards on workers: local fits, consensus, refine rounds, exact passes."""
