"""How many experts: BIC and ICL, the elbow of the transport objective (maths 16)."""

from otmoe.selection.result import CRITERIA, Candidate, Score, Selection
from otmoe.selection.scores import candidate_scores
from otmoe.selection.select import select_from_messages, select_n_experts, select_over_shards

__all__ = [
    "CRITERIA",
    "Candidate",
    "Score",
    "Selection",
    "candidate_scores",
    "select_from_messages",
    "select_n_experts",
    "select_over_shards",
]
