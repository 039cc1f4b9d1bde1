"""Helpers for the tests: real clusters, the services as separate processes, faults, and waiting for conditions."""
