"""Several years month by month."""
