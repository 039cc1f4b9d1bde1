"""What every phase of a run shares: its context, the points that observers see, the other instances, the writers."""
