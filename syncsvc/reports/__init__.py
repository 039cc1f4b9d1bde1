"""The reports on a sync in the formats that users read: pure functions of the saved record and the figures."""
