"""The pytest plugin: a fixture `doctor` with assertions on models. Nothing heavy is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lossdoctor.assertions import Assertions


@pytest.fixture
def doctor() -> Assertions:
    """Give assertions on a model, a batch and a loss: first loss, memorising, gradients, examples kept apart."""
    from lossdoctor.assertions import Assertions

    return Assertions()
