"""What a fresh process is asked, and what its function is called with. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from torchzoo.case import Case
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import ModelSpec


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a fresh process is to do."""

    function: str  # `module:function`
    case: Case
    spec: ModelSpec
    settings: Settings
    options: dict[str, Any]
    folder: str  # for files that later processes of the case read
    caches: str  # where compilers keep what they compile
    log: str
    device: str = ""  # in place of the case's: one of several, such as cuda:1
    cores: tuple[int, ...] = ()  # that the process keeps to; none: it may use all

    @property
    def used_device(self) -> str:
        return self.device or self.case.device


class Fresh(msgspec.Struct, kw_only=True):
    """What the function of a fresh process is called with."""

    ask: Ask
    began_ns: int  # of `time.monotonic_ns`, before Python itself started
    tell: Callable[[Stage], None]  # call it when a stage begins: a failure names the last one
