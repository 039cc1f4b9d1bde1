"""Applies the change events of the source: changes of documents in parallel lanes, DDL events behind barriers."""
