"""The parts of a run that all phases share: its context, the points for observers, the other instances, the writers."""
