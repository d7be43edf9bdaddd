"""What is wrong with a scenario beyond its types."""
