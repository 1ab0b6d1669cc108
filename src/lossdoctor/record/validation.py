"""See validation passes: forwards of a trained model that no backward follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer


class Passes:
    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.open = False

    def forward_began(self, call: Any, args: Any, kwargs: Any) -> None: ...
    def forward_ended(self, call: Any, result: Any) -> None: ...
    def loss_called(self, kind: str, args: Any, kwargs: Any, value: Any) -> None: ...
    def close(self, now: float) -> None: ...
    def loader_ended(self) -> None: ...
    def take_seconds(self) -> float:
        return 0.0
