"""What users are shown of a sync, in the shapes that they read: pure functions of the saved record and the figures."""
