"""The figures of a sync in this process: counters that the engine updates, and values computed from them."""
