"""Which inputs change the result, and why two fleets differ in cost."""
