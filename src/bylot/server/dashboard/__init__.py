"""The dashboard: read-only pages of routers, their rewards and limits, each also as JSON."""
