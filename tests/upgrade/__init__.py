"""Saved states of syncs begun by earlier versions: the contents of both clusters after the daemon was killed."""
