"""Which versions of this environment another one keeps, and which packages may change with what was asked for.

An environment that differs in torch alone must also differ in what belongs to that torch: triton and the libraries of
NVIDIA, which torch pins, and torchvision, which pins torch. All other packages keep their versions.
"""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from torchzoo.zoo.folders import checkout
from torchzoo.zoo.requirements import applies, distribution_name, is_installed, parse_requirement

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

_PIN = ("==", "===", "~=")


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A package of this environment."""

    version: str
    needs: tuple[tuple[str, SpecifierSet], ...]  # the names and versions that it requires here


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What an installer is told."""

    asked: tuple[str, ...]  # requirements, sorted; without what the SPEC names
    constraints: tuple[str, ...]  # `name==version` of every package that keeps its version, sorted
    free: tuple[str, ...]  # packages of this environment that are resolved anew, sorted


def own_requirements() -> list[str]:
    """The requirements of torchzoo and of its models' libraries that are installed here, without the tools."""
    root = checkout()
    if root is None:
        lines = importlib.metadata.requires("torchzoo") or []
        found = [line for line in lines if _applies_with(line, ("", "models"))]
    else:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        found = [*project["dependencies"], *project["optional-dependencies"]["models"]]
        found = list(filter(applies, found))
    return [line for line in found if is_installed(line)]


def _applies_with(requirement: str, extras: Iterable[str]) -> bool:
    marker = parse_requirement(requirement).marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def installed(requirements: Iterable[str]) -> dict[str, Installed]:
    """The packages that are installed for these requirements, and for theirs, by normalised name."""
    waiting: list[Requirement] = [parse_requirement(line) for line in requirements]
    seen: set[tuple[str, str]] = set()
    found: dict[str, Installed] = {}
    while waiting:
        requirement = waiting.pop()
        name = distribution_name(requirement.name)
        if not is_installed(name):
            continue
        new = {extra for extra in ("", *requirement.extras) if (name, extra) not in seen}
        if not new:
            continue
        seen |= {(name, extra) for extra in new}
        needs = [
            parse_requirement(line) for line in importlib.metadata.requires(name) or [] if _applies_with(line, new)
        ]
        waiting += needs
        before = found[name].needs if name in found else ()
        pairs = tuple((distribution_name(need.name), need.specifier) for need in needs)
        found[name] = Installed(version=importlib.metadata.version(name), needs=before + pairs)
    return found


def choose(wanted: Mapping[str, str | None], *, is_relaxed: bool = False) -> Requirements:
    """What an installer must be told to make this environment with other versions of some packages.

    Args:
        wanted: the other packages by normalised name, with a version or None.
        is_relaxed: whether what the changed packages need here, at any depth, is free, too. What torchzoo or the
            models need themselves is never free for this reason: a change of timm must not change torch.
    """
    own = own_requirements()
    here = installed([*own, *wanted])
    changed = {name for name, version in wanted.items() if name not in here or here[name].version != version}
    free = _tied_to(changed, here, wanted)
    if is_relaxed:
        free |= _below(free, here, stop={distribution_name(line) for line in own})
    asked = []
    for line in own:
        requirement = parse_requirement(line)
        name = distribution_name(requirement.name)
        if name not in wanted:
            requirement.marker = None
            asked.append(str(requirement))
    kept = {name: one.version for name, one in here.items() if name not in free and name not in wanted}
    return Requirements(
        asked=tuple(sorted(asked)),
        constraints=tuple(sorted(f"{name}=={version}" for name, version in kept.items())),
        free=tuple(sorted(free & set(here) - set(wanted))),
    )


def exactly(name: str, version: str) -> str:
    """The requirement of a release, in the same kind of build as the one that is installed here.

    To an installer, `torch==2.13.0` may also be `2.13.0+cpu`, and it prefers that. Beside a torch for CUDA, this would
    be another library. So a version without a label gets that of the installed one; if that has none, `===` is asked
    for, which takes no label.
    """
    if "+" in version or not is_installed(name):
        return f"{name}=={version}"
    from packaging.version import Version

    here = Version(importlib.metadata.version(name))
    if here.local:
        return f"{name}=={version}+{here.local}"
    asked = Version(version)
    missing = len(here.release) - len(asked.release)  # `===` compares texts: to it, 2.13 is not 2.13.0
    if missing > 0 and asked.base_version == version:
        version += ".0" * missing
    return f"{name}==={version}"


def _tied_to(changed: Iterable[str], here: Mapping[str, Installed], wanted: Mapping[str, str | None]) -> set[str]:
    """The packages that can't keep their versions if others change.

    These are what a changed package pins, what pins a changed package or does not allow its new version, and so on.
    """
    free = set(changed)
    waiting = list(free)
    while waiting:
        name = waiting.pop()
        below = {need for need, versions in here[name].needs if _is_pin(versions)} if name in here else set()
        above = {
            other
            for other, package in here.items()
            for need, versions in package.needs
            if need == name and (_is_pin(versions) or not _allows(versions, wanted.get(name)))
        }
        new = (below | above) - free
        free |= new
        waiting += new
    return free


def _below(names: Iterable[str], here: Mapping[str, Installed], stop: Collection[str]) -> set[str]:
    """What these packages need at any depth, without the packages of `stop` and what only those need."""
    found: set[str] = set()
    waiting = [name for name in names if name in here]
    while waiting:
        needs = {need for need, _ in here[waiting.pop()].needs if need in here}
        new = needs - found - set(stop)
        found |= new
        waiting += new
    return found


def _is_pin(versions: SpecifierSet) -> bool:
    return any(one.operator in _PIN for one in versions)


def _allows(versions: SpecifierSet, version: str | None) -> bool:
    return version is None or versions.contains(version, prereleases=True)
