"""From a run to a diagnosis: every fault asked, symptoms put under their causes, one verdict."""

from lossdoctor.diagnose.engine import choose, diagnose, judge, strength

__all__ = ["choose", "diagnose", "judge", "strength"]
