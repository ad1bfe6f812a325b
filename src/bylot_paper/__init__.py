"""The experiments of the paper and beyond: cells, runs, records, claims, figures and reports."""
