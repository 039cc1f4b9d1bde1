"""The checks before a sync begins: whether the start options fit the two clusters."""
