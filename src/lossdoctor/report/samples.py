"""Examples with their targets, as a check saw them: PNG inside the page for images, text for the rest."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from lossdoctor.core.diagnosis import Diagnosis
from lossdoctor.report import words


def samples(diagnosis: Diagnosis) -> list[Markup]:
    """Return the examples that a check looked at; none where there was no check, or another version wrote them.

    Example:
        >>> look = {"name": "look", "status": "done", "facts": {"samples": [{"row": "1, 2", "target": "0"}]}}
        >>> samples(Diagnosis(experiments=[look]))
        [Markup('<div>1, 2</div><div>target 0</div>')]
    """
    facts = next((each.get("facts") or {} for each in diagnosis.experiments if each.get("name") == "look"), {})
    try:
        return [_sample(each) for each in facts.get("samples") or ()]
    except (KeyError, TypeError, ValueError, AttributeError, struct.error):
        return []


def _sample(sample: Mapping[str, Any]) -> Markup:
    image = sample.get("image")
    given = (
        Markup('<img alt="example" src="{}">').format(png(image)) if image else Markup("<div>{}</div>").format(words.clean(sample["row"]))
    )
    return given + Markup("<div>target {}</div>").format(words.clean(sample["target"]))


def png(image: Mapping[str, Any]) -> str:
    """Return an image of one or three channels as the address of a PNG that holds itself.

    Raises:
        ValueError: where the pixels are not as many as the size says.

    Example:
        >>> png({"height": 1, "width": 1, "channels": 1, "pixels": "ff"})[:22]
        'data:image/png;base64,'
    """
    height, width, channels = int(image["height"]), int(image["width"]), int(image["channels"])
    pixels = bytes.fromhex(image["pixels"])
    if len(pixels) != height * width * channels:
        raise ValueError("an image of another size")
    rows = b"".join(b"\0" + pixels[row * width * channels : (row + 1) * width * channels] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)  # PNG specification, 11.2.2
    parts = b"".join(_chunk(kind, body) for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")))
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
