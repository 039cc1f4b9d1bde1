"""Plumbing shared by both processes: threads, retries, logs, options, HTTP serving. Knows nothing of MongoDB."""
