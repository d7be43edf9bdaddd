"""How requests come to the fleet."""
