"""The state of a sync that is saved in the metadata database, so that a killed process can continue."""
