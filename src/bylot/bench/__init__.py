"""Measurements of the package against its peers: each module owns one, and none is imported."""

REMEDY = "pip install '.[bench]' in the folder of the repository"
"""What to do about a peer that is not there."""
