"""Crowds whose answers are known to be right or wrong, and the pools that are drawn from them."""

from bylot.data.annotations import read
from bylot.data.crowd import Annotation, Counts, Crowd, Unjudged, assemble, describe
from bylot.data.fetch import fetch_trec
from bylot.data.madeup import synthetic
from bylot.data.pool import Pool
from bylot.data.source import find, from_files
from bylot.data.trec import read_trec

__all__ = [
    "Annotation",
    "Counts",
    "Crowd",
    "Pool",
    "Unjudged",
    "assemble",
    "describe",
    "fetch_trec",
    "find",
    "from_files",
    "read",
    "read_trec",
    "synthetic",
]
