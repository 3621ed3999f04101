"""How many experts: BIC, ICL, cross-validation; the elbow of transport (maths 16)."""

from otmoe.selection.candidate import Candidate, Expectation, Score
from otmoe.selection.in_memory import select_n_experts
from otmoe.selection.result import CRITERIA, Selection
from otmoe.selection.scores import candidate_scores
from otmoe.selection.select import select_from_messages, select_over_shards

__all__ = [
    "CRITERIA",
    "Candidate",
    "Expectation",
    "Score",
    "Selection",
    "candidate_scores",
    "select_from_messages",
    "select_n_experts",
    "select_over_shards",
]
