"""The objects that all phases of a sync use, such as the run context, the document writer and the write blocks."""
