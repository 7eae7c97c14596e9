"""Rules of `metadata.yaml`: skipped cases, tolerances, and limits that several models share."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import msgspec

from torchzoo.case import Case, CompileScope, MemoryFormat, Mode, Precision, ResultKind
from torchzoo.files import read_yaml
from torchzoo.zoo.requirements import unsatisfied

#: A text of `metadata.yaml`.
Line = Annotated[str, msgspec.Meta(max_length=1000)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cases of a rule, and its reason. An omitted field matches every case."""

    reason: Line
    mode: Mode | None = None
    device: tuple[str, ...] = ()  # device types: cpu, cuda, ...
    backend: tuple[str, ...] = ()  # with or without its option: inductor, inductor:max-autotune
    precision: tuple[Precision, ...] = ()

    def matches(self, case: Case) -> bool:
        """Whether all fields of the rule match the case."""
        return (
            self.mode in (None, case.mode)
            and (not self.device or case.device_type in self.device)
            and (not self.backend or bool({case.backend.name, str(case.backend)} & set(self.backend)))
            and (not self.precision or case.precision in self.precision)
        )


class ToleranceRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tolerance of the check that replaces the precision's for a model."""

    tolerance: float  # relative error; for `integers` and `detections`, the share that may differ
    what: tuple[ResultKind, ...] = ()


class SkipRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cases that a model can't run.

    `torch` has the versions for which the reason is known to hold, as in a requirement: `>=2.11,<2.16`. With other
    versions the case runs, since the fault of the compiler may be fixed in them.
    """

    memory_format: MemoryFormat | None = None
    compile_scope: CompileScope | None = None
    torch: Line | None = None

    def matches(self, case: Case) -> bool:
        return (
            Rule.matches(self, case)
            and self.memory_format in (None, case.memory_format)
            and self.compile_scope in (None, case.compile_scope)
            and (self.torch is None or unsatisfied(f"torch{self.torch}") is None)
        )

    def holds_for_all(self, mode: Mode, device: str | None = None) -> bool:
        """Whether the rule skips every case of `mode` (on devices of type `device`, or on all), on all other axes."""
        has_no_other_axis = self == SkipRule(reason=self.reason, mode=self.mode, device=self.device)
        return has_no_other_axis and self.mode in (None, mode) and (not self.device or device in self.device)


class KnownLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit that several models share: cases that are skipped, and steps that wait for the device."""

    skips: tuple[SkipRule, ...] = ()
    syncs: dict[Mode, Line] = {}


@functools.cache
def known_limits() -> dict[str, KnownLimit]:
    """The limits in `limits.yaml` by the names that a `metadata.yaml` uses."""
    return read_yaml(Path(__file__).with_name("limits.yaml"), dict[str, KnownLimit])
