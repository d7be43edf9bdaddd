"""Characters of random texts."""

from hypothesis import strategies as st


def any_of(characters: str) -> st.SearchStrategy[str]:
    """Return a strategy of *characters* for `text`, which would read the categories of all of Unicode for plain ones,
    in two seconds.
    """
    return st.sampled_from(characters).map(str)
