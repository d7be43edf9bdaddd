"""The local workspace in the browser: `app.py` names every address, `guard.py` decides who may ask.

Nothing below this room knows of it, and it computes nothing of its own: answers come from `study`, words from `report`.
"""
