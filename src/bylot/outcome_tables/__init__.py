"""outcome_tables."""
