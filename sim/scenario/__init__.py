"""Scenario files: what they may say (`schema`), how they are read (`load`), and what they come to (`resolve`)."""
