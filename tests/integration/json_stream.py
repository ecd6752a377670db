"""What ``kubectl get -w -o json`` prints: objects that follow one another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def objects(text: str) -> Iterator[Any]:
    """Complete JSON objects that follow one another; the last may be cut off."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        try:
            found, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield found
