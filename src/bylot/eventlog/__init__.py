"""Routers whose every decision and reward is in a log before anybody hears of it."""
