"""The definitions that the destination has: collections, indexes, views and shard keys, as stand-ins until commit."""
