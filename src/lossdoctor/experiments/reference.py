"""Small reference models that are taught classes by a few hundred rows: trees for tables, and a convolution as well for images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lossdoctor.experiments.examples import Floats
from lossdoctor.experiments.replay import Deadline, ReplayRefused

Reference = Callable[[Tensor], Tensor]  # rows to class numbers
_EPOCHS, _LEAST_EPOCHS, _ROWS, _RATE = 20, 8, 42, 5e-3
_SIDE = 32  # larger images are averaged down to it
_LEAST_SIDE = 6  # smaller ones are tables


def learn(rows: Tensor, classes: Tensor, deadline: Deadline) -> list[Reference]:
    """Teach the reference models that suit the rows.

    Args:
        rows: shape (n, ...), numbers.
        classes: shape (n,), whole numbers from 0.

    Raises:
        ReplayRefused: the time did not last for one.
    """
    made = [_trees(rows, classes)]
    if rows.dim() == 4 and min(rows.shape[2:]) >= _LEAST_SIDE:
        made.append(_network(rows, classes, deadline))
    return made


def right(references: Sequence[Reference], rows: Tensor, classes: Tensor) -> float:
    """Return the share of rows that the best of the references tells right."""
    return max(float((each(rows) == classes).double().mean()) for each in references)


def _trees(rows: Tensor, classes: Tensor) -> Reference:
    from sklearn.ensemble import ExtraTreesClassifier

    model = ExtraTreesClassifier(50, min_samples_leaf=2, random_state=0)
    model.fit(_table(rows), classes.numpy())
    return lambda given: torch.from_numpy(model.predict(_table(given)))


def _table(rows: Tensor) -> Floats:
    table: Floats = torch.nan_to_num(_small(rows).flatten(1).double()).numpy()
    return table


def _small(rows: Tensor) -> Tensor:
    """Average large images down."""
    if rows.dim() != 4 or max(rows.shape[2:]) <= _SIDE:
        return rows
    return nn.functional.adaptive_avg_pool2d(rows, (min(_SIDE, rows.shape[2]), min(_SIDE, rows.shape[3])))


def _network(rows: Tensor, classes: Tensor, deadline: Deadline) -> Reference:
    torch.manual_seed(0)
    centre, spread = rows.mean(), rows.std().clamp_min(1e-12)
    model = nn.Sequential(
        nn.Conv2d(rows.shape[1], 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(3),
        nn.Flatten(),
        nn.Linear(32 * 9, int(classes.max()) + 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE)
    given = (_small(rows) - centre) / spread
    for epoch in range(_EPOCHS):
        for part in torch.split(torch.randperm(len(given)), _ROWS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(given[part]), classes[part]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if deadline.over:
            if epoch + 1 < _LEAST_EPOCHS:
                raise ReplayRefused("the time was over before the reference model had learnt")
            break

    def told(more: Tensor) -> Tensor:
        with torch.no_grad():
            return model((_small(more) - centre) / spread).argmax(1)  # type: ignore[no-any-return]

    return told
