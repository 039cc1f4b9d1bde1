"""Rules for definitions, shard keys and names on the destination, and for repairs. They have no side effects."""
