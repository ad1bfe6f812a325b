"""Crowds whose answers are right or wrong, the pools drawn from them, and tables of outcomes."""

from bylot.data.annotations import read
from bylot.data.crowd import Annotation, Counts, Crowd, Unjudged, assemble, describe
from bylot.data.fetch import fetch_trec
from bylot.data.madeup import synthetic
from bylot.data.match import Match, matched
from bylot.data.outcomes import OutcomeTable, read_experts, read_outcomes
from bylot.data.pool import Pool
from bylot.data.skills import SkillTable, read_skills
from bylot.data.source import find, from_files
from bylot.data.trec import read_trec

__all__ = [
    "Annotation",
    "Counts",
    "Crowd",
    "Match",
    "OutcomeTable",
    "Pool",
    "SkillTable",
    "Unjudged",
    "assemble",
    "describe",
    "fetch_trec",
    "find",
    "from_files",
    "matched",
    "read",
    "read_experts",
    "read_outcomes",
    "read_skills",
    "read_trec",
    "synthetic",
]
