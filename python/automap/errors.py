"""The exceptions of the package."""


class Error(Exception):
    """Says what is wrong, and what to do about it. `exit_code`: of the program that said so (docs/exit-codes.md: 4 is that
    no plan fits), else None."""

    def __init__(self, text, exit_code=None):
        super().__init__(text)
        self.exit_code = exit_code
