"""Applies the change events of the source: writes in lanes, definitions behind barriers."""
