"""What a process knows of its sync at this moment: counters that the engine moves, and what follows from them."""
