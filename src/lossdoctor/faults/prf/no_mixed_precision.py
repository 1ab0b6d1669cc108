"""The hardware has faster matrix units that are idle.

What you see
------------
The device is busy with products in float32, and memory is full of float32 activations.

Why it happens
--------------
Matrix units compute bfloat16 and float16 several times as fast as float32. PyTorch uses them only where it is told to.

How it is told apart
--------------------
The products of a captured step are counted by their type, and a large product is timed on this device in float32 and in bfloat16. It is
present where nearly all are float32, bfloat16 is clearly faster, and products are a good part of a step's time.

What to do
----------
`with torch.autocast(device_type, dtype=torch.bfloat16):` around forward and loss; float16 with `torch.amp.GradScaler`, where there is no
bfloat16. On NVIDIA devices `torch.set_float32_matmul_precision("high")` is half of it for one line.

When this is wrong
------------------
Where the last digits count, as in some physics, float32 is meant. What is timed is a large product; small ones gain less.
"""

from __future__ import annotations

from lossdoctor.core.diagnosis import BiggerMachine, Evidence
from lossdoctor.core.fault import Detection, Example, Fault
from lossdoctor.core.run import Experiment, Training
from lossdoctor.derive.strength import slope

ALIKE, FASTER = 1.3, 1.8  # times as fast in bfloat16: by chance and on processors without units for it up to 1.2; matrix units 2 to 8
SOME, MOST = 0.2, 0.4  # share of a step's time that its products take at the measured peak, at least; starting values
WIDE = 0.9  # share of the products that are float32


def detect(training: Training) -> Detection | None:
    """Compare the peaks of both precisions, and what products take of a step."""
    facts = training.experiment("throughput")
    peaks, by_type = facts.get("peaks") or {}, facts.get("flops_by_dtype")
    flops, half, seconds = (_positive(each) for each in (peaks.get("flops"), peaks.get("half_flops"), facts.get("seconds")))
    if not flops or not half or not seconds or not isinstance(by_type, dict):
        return None
    products = {name: float(count) for name, count in by_type.items() if isinstance(count, int | float) and count > 0}
    whole, wide = sum(products.values()), products.get("float32", 0.0)
    if not whole > 0 or not wide >= WIDE * whole:
        return None
    share, factor = min(1.0, wide / flops / seconds), half / flops
    strength = min(slope(factor, ALIKE, FASTER), slope(share, SOME, MOST))
    if not strength > 0:
        return None
    seen = f"products in float32 take at least {share:.0%} of a step"
    evidence = Evidence("throughput", (0, 0), seen, "bfloat16", f"a large product is {factor:.2g} times as fast in bfloat16 on this device")
    return Detection(strength, (evidence,), gain={"time": share * (1 - 1 / factor)})


def _positive(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < float("inf") else 0.0


def _run(factor: float, share: float, kind: str = "float32") -> Training:
    facts = {"seconds": 0.1, "peaks": {"flops": 1e12, "half_flops": factor * 1e12}, "flops_by_dtype": {kind: share * 1e11}}
    return Training(experiments={"throughput": Experiment("throughput", "done", 1.0, facts)})


FAULT = Fault(
    code="PRF003",
    slug="no-mixed-precision",
    title="The hardware has faster matrix units that are idle",
    detect=detect,
    needs=("throughput",),
    fix="Put torch.autocast with bfloat16 around forward and loss; `lossdoctor speed` measures it and whether the loss follows.",
    severity="advice",
    bigger_machine=BiggerMachine("no", "this device has units that are not used yet"),
    examples=(
        Example("sick", _run(8.0, 0.7), "matrix units eight times as fast"),
        Example("sick", _run(2.1, 0.5), "twice as fast"),
        Example("healthy", _run(8.0, 0.7, "bfloat16"), "autocast"),
        Example("healthy", _run(0.6, 0.7), "a processor that is slower in bfloat16"),
        Example("look-alike", _run(8.0, 0.05), "products are a small part"),
        Example("look-alike", _run(1.2, 0.7), "hardly faster"),
    ),
)
