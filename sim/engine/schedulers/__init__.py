"""Who is in the next step: one policy a file."""
