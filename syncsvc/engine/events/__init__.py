"""Applies the source's change events: changes of documents in parallel threads (lanes), DDL events one by one."""
