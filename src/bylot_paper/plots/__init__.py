"""Figures of finished records; nothing here plays or computes an optimum."""
