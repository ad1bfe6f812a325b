"""Benchmarks against other libraries; each module is one benchmark with `run` and `render`."""
