"""Running cases: what each rests on, where it is simulated, and how its result is kept on disk."""
