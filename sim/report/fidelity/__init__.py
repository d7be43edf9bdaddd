"""What a reader gets of predictions against measurements, and of fitted factors."""
