"""Charges, and the ledger that books them."""
