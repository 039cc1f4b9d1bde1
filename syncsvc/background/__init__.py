"""Work in threads that the sync does not wait for: limits its speed, and saves, logs and publishes its progress."""
