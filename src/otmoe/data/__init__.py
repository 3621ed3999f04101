"""From files to features: tables, columns, sketches, shards."""
