"""Maximum likelihood from sums that add up over blocks, shards and sites."""
