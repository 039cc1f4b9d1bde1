"""Rules for what the destination gets: definitions, shard keys, names and repairs. They read no cluster, no state."""
