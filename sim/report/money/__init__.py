"""What a reader gets of rent or buy and of plans."""
