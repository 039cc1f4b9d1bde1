"""Benchmarks of the sync service and the verifier on throw-away clusters: `python -m tests.bench`."""
