"""The reports on a sync in the formats that users read. Pure functions of the saved run record and the figures."""
