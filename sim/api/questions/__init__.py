"""The questions beside `run`: one function and one answer each."""
