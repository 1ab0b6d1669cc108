"""Errors whose text is meant for the user: what happened, to what, what to do."""

from __future__ import annotations


class LossdoctorError(Exception):
    """Stop with a message for the user and an exit status.

    Args:
        message: one or two sentences with the name that the user typed.
        status: process exit status; 3 is an error of ours, 2 wrong usage.

    Example:
        >>> LossdoctorError("no run named 'x'; `lossdoctor list` shows them", status=2).status
        2
    """

    def __init__(self, message: str, status: int = 3) -> None:
        super().__init__(message)
        self.status = status


class UsageError(LossdoctorError):
    """Stop because the call itself is wrong: an unknown code, option value or path.

    Example:
        >>> UsageError("no fault 'LOP999'").status
        2
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, status=2)


class SignalMissing(Exception):
    """Say from inside a rule that it cannot decide because a signal was not recorded.

    Args:
        signal: the name of the missing signal.
        remedy: how the user gets it, as one imperative phrase.

    Example:
        >>> SignalMissing("validation", "evaluate on held-out data in the script").signal
        'validation'
    """

    def __init__(self, signal: str, remedy: str = "") -> None:
        super().__init__(signal)
        self.signal = signal
        self.remedy = remedy
