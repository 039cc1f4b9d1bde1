"""The check: compares the documents and definitions of two clusters until it has a verdict.

The only writes of this package are the saved state of a check, and no-ops in the oplogs (`cluster.note`).
"""
