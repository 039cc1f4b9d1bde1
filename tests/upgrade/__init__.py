"""Syncs that an earlier version has begun, as it left them on both clusters when it was killed."""
