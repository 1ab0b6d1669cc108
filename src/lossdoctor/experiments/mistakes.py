"""What predictions on held-out rows get wrong, by how sure they were: the mark of wrong labels.

Where classes overlap, mistakes are made in doubt, and hardly any among the surest fifth of the predictions. Labels that are
wrong at random are missed as often there as anywhere. (Among the surer half, inputs drowned in noise look like wrong labels.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FEWEST = 200  # rows: forty in the surest fifth, whose share of mistakes then has a standard error of at most .08


def mistakes(probabilities: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the share of mistakes over all rows and among the surest fifth.

    Args:
        probabilities: shape (rows, classes); any scores whose largest tells the class and how surely.
        labels: shape (rows,), column numbers.

    Returns:
        `rows`, `classes`, `mistaken`, `surely_mistaken`; empty below two hundred rows.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.6, 0.4]] * 100)
        >>> found = mistakes(scores, np.array([0, 1] * 100))
        >>> found["mistaken"], found["surely_mistaken"]
        (0.5, 0.0)
    """
    if len(labels) < FEWEST or probabilities.shape[1] < 2:
        return {}
    ordered = np.sort(probabilities, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    wrong = probabilities.argmax(1) != labels
    surest = np.argsort(-margin, kind="stable")[: len(labels) // 5]
    return {
        "rows": len(labels),
        "classes": int(probabilities.shape[1]),
        "mistaken": float(wrong.mean()),
        "surely_mistaken": float(wrong[surest].mean()),
    }
