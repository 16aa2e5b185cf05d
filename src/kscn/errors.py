"""What can go wrong, one exception type per kind of fault, `KscnError` at the root.

Every message says what was given, what was expected and what to do; the command line prints it as
one sentence and exits with code 2.
"""


class KscnError(Exception):
    """Root of every error that kscn raises on purpose."""


class InputError(KscnError, ValueError):
    """An argument or an array that cannot be used as it is."""


class DataError(KscnError, ValueError):
    """A data file, folder or catalogue entry that cannot be read."""


class ModelFileError(KscnError, ValueError):
    """A saved model or run directory that is damaged, foreign or cannot be written."""


class TrainingError(KscnError):
    """Training cannot go on: a loss that is no number, a latent that carries nothing."""
