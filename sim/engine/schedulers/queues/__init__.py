"""Who waits, and who is next."""
