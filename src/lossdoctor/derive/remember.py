"""Remember what was worked out of a series: many rules ask the same of the one loss, and a log may hold a million values of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from lossdoctor.core.run import Series

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def remembered(function: Callable[Concatenate[Series, Arguments], Result]) -> Callable[Concatenate[Series, Arguments], Result]:
    """Keep the results of a pure function of a series, with the series itself: they are gone when it is.

    Args:
        function: of a series and of arguments that can be hashed.

    Example:
        >>> asked = []
        >>> length = remembered(lambda series: asked.append(series) or len(series))
        >>> series = Series.of([1.0, 2.0])
        >>> length(series), length(series), len(asked)
        (2, 2, 1)
    """

    @functools.wraps(function)
    def answer(series: Series, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        known = vars(series).setdefault("remembered", {})
        key = (function, args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = function(series, *args, **kwargs)
        result: Result = known[key]
        return result

    return answer
