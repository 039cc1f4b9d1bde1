"""Saved states of syncs that earlier versions have begun, and the program that saves such states."""
