"""Rules for repairs and namespace filters, and for definitions, shard keys and names on the destination.

The functions in this package have no side effects.
"""
