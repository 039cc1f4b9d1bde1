"""Tests of what the HTTP interfaces of both services promise, row by row, on real clusters."""
