"""Monte Carlo draws of prices and other uncertain inputs."""
