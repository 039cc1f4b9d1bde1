"""Runs a saved sync in this process: creates its engine, executes commands, and handles failures."""
