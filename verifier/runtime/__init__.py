"""Plumbing of both processes: threads, retries, logs, metrics, options, HTTP serving. Knows nothing of MongoDB."""
