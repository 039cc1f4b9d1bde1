"""The reports on a sync in the formats that users read, and the schemas of these reports (`*_schemas`).

The functions in this package have no side effects. Their input is saved state, such as the run record, and the figures
of this process.
"""
