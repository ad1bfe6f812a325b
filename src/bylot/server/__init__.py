"""The HTTP server: routers in a store, behind a JSON API and a dashboard."""
