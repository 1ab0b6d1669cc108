"""How well can two sets of rows be told apart? A classifier's area under the curve on rows held out; .5 where they are alike."""

from __future__ import annotations

import numpy as np

from lossdoctor.experiments.examples import Floats

FEWEST, MOST = 40, 300  # rows of each side
_FEATURES = 256


def told_apart(one: Floats, other: Floats) -> float | None:
    """Return the area under the curve of trees that tell two sets of rows apart, three folds; None where there are too few.

    Args:
        one, other: rows, shape (n, features); of many features evenly spaced ones are used.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> told_apart(rows[:100], rows[100:] + 5)
        1.0
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict

    rows = min(len(one), len(other), MOST)
    if rows < FEWEST or one.shape[1] != other.shape[1]:
        return None
    columns = np.linspace(0, one.shape[1] - 1, min(_FEATURES, one.shape[1])).astype(int)
    draw = np.random.default_rng(0)
    parts = [np.nan_to_num(each[draw.permutation(len(each))[:rows]][:, columns]) for each in (one, other)]
    table, side = np.concatenate(parts), np.repeat([0, 1], rows)
    order = draw.permutation(2 * rows)
    model = ExtraTreesClassifier(50, min_samples_leaf=3, random_state=0)
    said = cross_val_predict(model, table[order], side[order], cv=3, method="predict_proba")[:, 1]
    return float(roc_auc_score(side[order], said))
