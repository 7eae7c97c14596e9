"""What is wrong with the fields of a `metadata.yaml`, in plain words and all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from torchzoo.case import Domain
from torchzoo.errors import attempt, nearest, one_line
from torchzoo.zoo.spec import COMPUTED, ModelSpec

#: The fields that every model has, and what they are.
MEANING = {
    "domain": f"one of {', '.join(Domain)}",
    "task": "what the model does, in a word such as image_classification",
    "paper": "the link to the paper, which begins with https://",
    "source": "the library that has the model, or 'written here after <paper>'",
    "requirements": "a list of the libraries that pip must install beyond torch; [] if there are none",
    "parameters": "how many elements the parameters of all networks have",
    "batch_size": "the batch of each mode in the original code, as in {train: 16, eval: 8}",
    "smoke_batch_size": "a small batch, for tests on the CPU",
}


def wrong_fields(given: Mapping[str, Any]) -> list[str]:
    """Fields that only a person can fill in and that are missing, that there are not, and that have a wrong value."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(ModelSpec)}
    wrong = [f"has no {name}: {MEANING[name]}" for name in MEANING if name not in given and name not in COMPUTED]
    for name, value in given.items():
        if name not in kinds:
            wrong.append(f"has {name}, which is no field: {nearest(str(name), kinds, otherwise='leave it out')}")
        else:
            wrong += _wrong_value(name, value, kinds[name])
    return [f"metadata.yaml {what}" for what in wrong]


def _wrong_value(name: str, value: Any, kind: Any) -> list[str]:
    error = attempt(lambda: msgspec.convert(value, kind))
    if not isinstance(error, msgspec.ValidationError):
        return []
    what, _, place = one_line(error).partition(" - at `$")
    meaning = f" ({MEANING[name]})" if name in MEANING else ""
    return [f"has a wrong {name}{place.rstrip('`')}{meaning}: {what[:1].lower()}{what[1:]}"]
