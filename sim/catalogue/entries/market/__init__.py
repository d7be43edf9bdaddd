"""Offers and electricity grids: what prices and carbon rest on."""
