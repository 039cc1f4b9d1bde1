"""The users and roles of two clusters: `comparison` decides which are copied, and `listing` reads them.

A principal is a user or a custom role. `syncsvc.engine.principal_copy` copies them.
"""
