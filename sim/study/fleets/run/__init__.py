"""What the finished cases of a run come to: points of a sweep, their figures, and fleets compared."""
