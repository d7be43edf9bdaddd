"""Drawing: panels, labels, fonts."""
