"""Stored routers over HTTP: the only place that reads clocks and opens sockets."""
