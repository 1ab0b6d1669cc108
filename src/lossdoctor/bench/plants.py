"""Plants of conditions whose fault files are still to come. A fault file's own plants take the place of those here."""

from __future__ import annotations

from lossdoctor.core.fault import Plant

_LOADED = r"^(x_train, y_train, x_test, y_test = load\(SEED\))$"
_STARTED = r"^initialise\(model\)$"


def _dead(bias: float) -> str:
    # Pre-activations of these recipes have a standard deviation near 1 at the start.
    layers = "(layer for layer in model.body if isinstance(layer, nn.Linear))"
    return f"initialise(model)\nfor layer in {layers}:\n    nn.init.constant_(layer.bias, {bias})"


def _shuffle(share: float) -> str:
    rows = f"torch.randperm(len(y_train))[: int({share} * len(y_train))]"
    return f"\\1\nrows = {rows}\ny_train[rows] = y_train[rows[torch.randperm(len(rows))]]"


PLANTS: dict[str, tuple[Plant, ...]] = {
    "labels-meaningless": (
        Plant("mild", "data", _LOADED, _shuffle(0.97)),
        Plant("middle", "data", _LOADED, _shuffle(1.0)),
        Plant(
            "severe", "data", _LOADED, r"\1\ny_train, y_test = y_train[torch.randperm(len(y_train))], y_test[torch.randperm(len(y_test))]"
        ),
    ),
    "dead-units": (
        Plant("mild", "model", _STARTED, _dead(-5.0), kinds=("relu",)),
        Plant("middle", "model", _STARTED, _dead(-20.0), kinds=("relu",)),
        Plant("severe", "model", _STARTED, _dead(-100.0), kinds=("relu",)),
    ),
    "model-too-small": (
        Plant("mild", "model", r"^WIDTH = \d+$", "WIDTH = 3"),
        Plant("middle", "model", r"^WIDTH = \d+$", "WIDTH = 2"),
        Plant("severe", "model", r"^WIDTH = \d+$", "WIDTH = 1"),
    ),
}
