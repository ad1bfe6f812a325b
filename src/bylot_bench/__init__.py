"""Measurements of the package against its peers: each module owns one, and none is imported."""
