"""Training runs predicted row by row."""
