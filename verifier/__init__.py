"""The verifier: reads two clusters and says whether they hold the same.

It never writes user documents, because nothing that it can import does. What the sync service needs of it
(`runtime`, `cluster`, `compare`) lives here too, so that the checker never depends on what it checks.
"""
