"""What differs between two runs, for terminal and page."""
