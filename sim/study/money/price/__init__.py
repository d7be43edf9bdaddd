"""What finished cases cost, at these prices or at others."""
