"""The checks before a sync begins: they find out whether the start options fit the two clusters."""
