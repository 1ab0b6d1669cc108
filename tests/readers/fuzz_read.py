"""Feed the readers with mutated logs: `python tests/readers/fuzz_read.py CORPUS -max_total_time=600 -rss_limit_mb=2048`.

It needs `pip install atheris`. Whatever the bytes are, reading ends in a diagnosis or in one sentence for the user.
"""

import contextlib
import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["lossdoctor"]):
    from lossdoctor import readers
    from lossdoctor.core.errors import LossdoctorError
    from lossdoctor.readers import read

    for module in pkgutil.walk_packages(readers.__path__, "lossdoctor.readers."):
        importlib.import_module(module.name)  # imported in here, they are instrumented

LOG = Path(tempfile.mkdtemp(prefix="lossdoctor-")) / "log"


def one(data: bytes) -> None:
    LOG.write_bytes(data)
    with contextlib.suppress(LossdoctorError):
        read(LOG)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
