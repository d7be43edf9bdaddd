"""A finished run held in memory, asked again and again: at other prices, under another service level."""
