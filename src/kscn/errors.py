"""What can go wrong, one exception type per kind of fault, `KscnError` at the root.

Every message says what was given, what was expected and what to do; the command line prints it as
one sentence and exits with code 2.
"""

# Letters of what a library or a file says that are passed on to people.
_LONGEST_REASON = 300


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


def reason(error: Exception | str) -> str:
    """What a library, a file or the system says, short and on one line as part of a sentence."""
    said = getattr(error, "strerror", None) or str(error)
    text = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return text[:_LONGEST_REASON] or ("" if isinstance(error, str) else type(error).__name__)
