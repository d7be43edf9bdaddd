"""What differs between two finished runs: in what they were asked, and in what came of it."""
