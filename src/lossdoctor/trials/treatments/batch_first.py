"""The other order of axes in torch's recurrent layers: batch first where time was, and the other way round."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lossdoctor.trials.hooks import Hooks


def apply(hooks: Hooks) -> None:
    """Call recurrent layers with the other `batch_first`; packed and single sequences stay as they are."""

    def make(original: Any) -> Any:
        def forward(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(input, Tensor) or input.dim() != 3:
                return original(self, input, *args, **kwargs)
            hooks.note("batch_first")
            own, self.batch_first = self.batch_first, not self.batch_first
            try:
                return original(self, input, *args, **kwargs)
            finally:
                self.batch_first = own

        return forward

    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        hooks.wrap(kind, "forward", make)
