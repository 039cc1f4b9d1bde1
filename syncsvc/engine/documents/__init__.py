"""Translates change events to writes, and overwrites documents on the destination with those of the source."""
