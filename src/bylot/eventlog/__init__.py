"""Stored routers: every decision and reward is in an event log before the caller gets an answer."""
