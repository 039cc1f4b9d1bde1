"""What is saved of a sync in the metadata database, so that a killed process goes on where it was."""
