"""The objects that the phases of a sync share, such as the run context, the document writer and the write blocks."""
