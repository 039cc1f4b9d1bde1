"""Tests the documented HTTP interfaces of the sync service and of the verifier, on real clusters."""
