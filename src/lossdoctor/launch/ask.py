"""The line between the supervisor and a script that has ended: the supervisor asks for experiments, the script's process answers.

The script's process still holds the model and the captured batches; nothing else does. It waits at most `PATIENCE`
seconds for the next question. Requests and answers are JSON lines over a socket in the supervisor's scratch folder.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # a supervisor that was killed must not leave the script hanging; loading and judging a run takes under 2 s
Ask = Callable[[Mapping[str, Any]], "Mapping[str, Any] | None"]


class Questions:
    """The supervisor's end: listens until the script has ended, then lets `ask` be called.

    Args:
        path: of the socket; must not exist.

    `asking` is true between the first question and the last answer: a process that ends meanwhile ended in our hands.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asking = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)

    def when_asked_for(self, work: Callable[[Ask], None]) -> None:
        """Call `work(ask)` in a thread once the script's process says that it is ready; `ask` returns None when it is gone."""
        threading.Thread(target=self._serve, args=(work,), daemon=True).start()

    def _serve(self, work: Callable[[Ask], None]) -> None:
        with contextlib.suppress(Exception):  # an error of ours in here: the run is diagnosed without experiments
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rwb") as stream:
                self.asking = True
                try:
                    work(lambda request: _exchange(stream, request))
                finally:
                    self.asking = False  # where the work failed, the script's process goes on to its own end

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        with contextlib.suppress(OSError):
            self.path.unlink()


def _exchange(stream: Any, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        stream.write(json.dumps(request).encode() + b"\n")
        stream.flush()
        line = stream.readline()
        return json.loads(line) if line else None
    except (OSError, ValueError):
        return None


def answer_questions(path: str, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """The script's end: tell that the script has ended, and answer until the supervisor hangs up or is silent too long."""
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(PATIENCE)
        line.connect(path)
        with line.makefile("rwb") as stream:
            for request in iter(stream.readline, b""):
                stream.write(json.dumps(answer(json.loads(request))).encode() + b"\n")
                stream.flush()
