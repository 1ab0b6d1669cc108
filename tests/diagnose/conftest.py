"""A folder of made faults, so that the engine is tested without real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_faults import made

from lossdoctor.core import fault as fault_module
from lossdoctor.core.diagnosis import BiggerMachine
from lossdoctor.core.fault import Fault
from lossdoctor.diagnose import confidence, engine


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Fault]]:
    """Replace the folder of faults by made ones, and the calibration by none."""

    def use(*made_faults: Fault) -> dict[str, Fault]:
        known = {fault.slug: fault for fault in sorted(made_faults, key=lambda fault: fault.code)}
        monkeypatch.setattr(engine, "faults", lambda: known)
        monkeypatch.setattr(fault_module, "faults", lambda: known)
        monkeypatch.setattr(confidence, "tables", dict)
        return known

    return use


@pytest.fixture
def four(folder: Callable[..., dict[str, Fault]]) -> dict[str, Fault]:
    """Use a cause, its symptom, an independent fault, and a symptom of the curve."""
    return folder(
        made("AAA001", "cause", explains=("symptom",), decides_with=("memorise",)),
        made("BBB001", "symptom", severity="warning"),
        made("BBB002", "other", severity="warning", bigger_machine=BiggerMachine("speed-only", "it is slow")),
        made("CUR001", "curve"),
    )
