"""torchtune's and torchtitan's logs: a line per step with named figures."""

from __future__ import annotations

import re

from lossdoctor.readers.parts.lines import LineFormat

TUNE = LineFormat("torchtune log", re.compile(r"^Step \d+ \| .*loss:"), sure=0.93)
TITAN = LineFormat("torchtitan output", re.compile(r"\bstep: *\d+ +(?:\S*loss|validate)\S*: "), names={"memory": "", "mfu": ""}, sure=0.93)

READERS = (TUNE.reader(), TITAN.reader())
