"""Applies the change events of the source: writes in lanes, definition events behind barriers."""
