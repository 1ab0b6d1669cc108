"""The torch side: seams that see, probes that measure, a recorder that keeps to the budget, a writer that survives."""

from lossdoctor.record.arm import arm
from lossdoctor.record.recorder import Recorder

__all__ = ["Recorder", "arm"]
