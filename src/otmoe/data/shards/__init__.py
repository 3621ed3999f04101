"""Where rows are, in memory or in files: a description of each part that is fitted separately."""

from otmoe.data.shards.cutting import shards_from
from otmoe.data.shards.gathering import ShardRows, rows_dropped
from otmoe.data.shards.reading import ArrayShard, FileShard, Piece, Shard, grouped_by
from otmoe.data.shards.sampling import draw_features, sample_rows
from otmoe.data.shards.splitting import ROWS_PER_PARAMETER, RowsShard, joined, split
from otmoe.data.shards.writing import write_batches
from otmoe.text.errors import ShardError

__all__ = [
    "ROWS_PER_PARAMETER",
    "ArrayShard",
    "FileShard",
    "Piece",
    "RowsShard",
    "Shard",
    "ShardError",
    "ShardRows",
    "draw_features",
    "grouped_by",
    "joined",
    "rows_dropped",
    "sample_rows",
    "shards_from",
    "split",
    "write_batches",
]
