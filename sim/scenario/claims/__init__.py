"""What a claim's file says: the statement, the figures that check it, and the rules of its verdict."""
