"""The parts of a run that all phases share: its context, observation points, the other instances, the writers."""
