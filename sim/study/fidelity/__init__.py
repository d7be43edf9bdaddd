"""How near predictions come to measurements, and factors fitted to one's own."""
