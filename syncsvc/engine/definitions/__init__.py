"""The definitions on the destination: collections, indexes, views and shard keys, as stand-ins until the commit."""
