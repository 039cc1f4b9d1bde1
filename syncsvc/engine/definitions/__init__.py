"""The collections, indexes, views and shard keys of the destination, as stand-ins (`standin`) until the commit."""
