"""The contract of both services, row by row, on real clusters."""
