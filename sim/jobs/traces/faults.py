"""What is wrong with a job trace, with its lines."""

SHOWN = 20


class JobTraceError(ValueError):
    """A trace that cannot be read. `errors` holds (path, line, message); line 0 is the file as a whole."""

    def __init__(self, errors: list[tuple[str, int, str]]) -> None:
        self.errors = errors[:SHOWN]
        if len(errors) > SHOWN:
            self.errors.append((errors[0][0], 0, f"and {len(errors) - SHOWN} more"))
        super().__init__(errors)

    def __str__(self) -> str:
        return "\n".join(f"{path}:{line}: {text}" for path, line, text in self.errors)
