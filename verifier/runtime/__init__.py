"""Infrastructure of the sync service and the verifier: threads, retries, logs, metrics, options, HTTP serving.

Independent of MongoDB.
"""
