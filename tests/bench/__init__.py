"""Benchmarks of the copy and of change event application, on throw-away clusters: `python -m tests.bench`."""
