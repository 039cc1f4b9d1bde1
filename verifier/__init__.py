"""The verifier: reads two clusters and says whether they hold the same.

It writes no user documents: its only writes are those of its own state. What the sync service needs of it (`runtime`,
`cluster`, `compare`) lives here too, so that the checker never depends on what it checks.
"""

__version__ = "0.1.0"
