"""Kinds of scenarios with work to do, and how each is answered."""
