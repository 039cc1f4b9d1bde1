"""The check: what is compared, how, and when a difference is a mismatch.

Writes only the saved state of a check, and no-ops to the oplogs (`cluster.note`).
"""
