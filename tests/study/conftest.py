"""The made-up cases for tests beside this file."""

from made_up_cases import make_case, two_fleets

__all__ = ["make_case", "two_fleets"]
