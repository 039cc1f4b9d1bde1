"""Runs a saved sync in this process: creates its engine, carries out commands on it, and handles failures."""
