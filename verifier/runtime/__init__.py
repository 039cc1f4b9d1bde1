"""Infrastructure of the sync service and the verifier: threads, retries, logs, metrics, options, HTTP serving.

This package does not depend on MongoDB or its driver.
"""
