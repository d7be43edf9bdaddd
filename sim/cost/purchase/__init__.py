"""What buying hardware costs."""
