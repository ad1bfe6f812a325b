"""bylot_paper."""
