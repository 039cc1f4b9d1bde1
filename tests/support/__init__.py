"""What tests share: the daemon as a process, waiting for conditions, documents of every kind."""
