"""Limits: what they are in numbers, what was spent under each, and how they are kept.

A policy chooses panels, and this package knows nothing of policies. It admits or replaces a panel,
books what it costs, paces budgets, settles bills, and says how each limit stands.
"""
