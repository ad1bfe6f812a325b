"""Policies that are compared with those of bylot: `strict` and the baselines of the paper.

`bylot.policies.catalog` finds them by name and imports the module of the one in use.
"""
