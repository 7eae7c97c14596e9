"""Express the software of two nights as two SPECs, for an A/B and a bisection."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from torchzoo.environments.parsing import Spec, canonical, parse
from torchzoo.environments.pins import choose
from torchzoo.errors import UsageError
from torchzoo.machine.differences import software_facts
from torchzoo.record import Environment, Manifest
from torchzoo.report.units import first_few
from torchzoo.zoo.requirements import distribution_name

#: Facts that follow from the version of torch.
_OF_TORCH = frozenset({"torch_commit", "cuda", "hip", "cudnn"})
#: Facts of a run that are not about software.
_NO_SOFTWARE = frozenset({"threads", "compile caches", "compile threads", "workers", "GPUs"})


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """The software of two nights as SPECs."""

    base: str
    candidate: str
    good: str  # the two SPECs for a bisection. They differ in what the SPECs of the nights name, if these differ,
    bad: str  # else in the versions of packages
    is_part: bool = False  # whether more changed than `good` and `bad` differ in
    rest: tuple[str, ...] = ()  # other differences, which no SPEC restores


def sides_of(base_spec: str, base: Manifest, tonight_spec: str, tonight: Manifest) -> Sides:
    """Return the SPECs that restore the software of two nights.

    A night is given by its SPEC in full and the manifest of its run. If packages changed that no SPEC names, as in an
    environment that is kept up to date, the base names them with their old versions.
    """
    is_one_spec = base_spec == tonight_spec
    environments = (base.environment, tonight.environment)
    are_all_known = all(one.distributions is not None for one in environments)
    versions = [_versions(one, with_all=are_all_known) for one in environments]
    facts = _differing(software_facts(base), software_facts(tonight)) - _NO_SOFTWARE
    changes = facts | _differing(*versions)
    if is_one_spec and not changes:
        raise UsageError("no recorded software changed, so there is nothing to measure in turns")
    specs = parse(base_spec), parse(tonight_spec)
    if any(spec.python is not None for spec in specs):
        if is_one_spec:
            why = f"{first_few(sorted(changes))} changed, and the Python of both nights is the same: {base_spec}"
            raise UsageError(f"{why}. Give each night an environment of its own")
        return Sides(base=base_spec, candidate=tonight_spec, good=base_spec, bad=tonight_spec)
    mains = {"torch", *map(distribution_name, base.environment.packages)}
    named = {*specs[0].wanted, *specs[1].wanted}
    changed = {name for name in _differing(*versions) & versions[0].keys() if name not in named}
    # An installer chooses the dependencies of the main packages, such as torch's CUDA libraries.
    asked = {name: versions[0].get(name) for name in named | (changed & mains)}
    follow = set(choose(asked).free) - mains if changed - mains else set()
    changed -= follow
    rest = {name for name in changes if distribution_name(name) not in changed | named | follow}
    rest -= {*specs[0].variables, *specs[1].variables}
    rest -= _OF_TORCH if "torch" in changed | named else set()
    if is_one_spec and not changed:
        raise UsageError(f"{first_few(sorted(rest or changes))} changed, and no SPEC brings back the old one")
    varied = (changed & mains or changed) if is_one_spec else set()
    bisected = _without_what_follows(varied, versions[0])
    return Sides(
        base=_with(specs[0], versions[0], changed),
        candidate=tonight_spec,
        good=_with(specs[0], versions[0], bisected),
        bad=_with(specs[1], versions[1], bisected),
        is_part=len(varied) < len(changed),
        rest=tuple(sorted(rest)),
    )


def _differing(was: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    return {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}


def _versions(environment: Environment, *, with_all: bool) -> dict[str, str]:
    """Return the versions of torch and the main packages, or of all packages but torchzoo, by normalised name."""
    every = (environment.distributions or {}) if with_all else {}
    versions = {**every, "torch": environment.torch, **environment.packages}
    return {distribution_name(name): version for name, version in versions.items() if name != "torchzoo"}


def _with(spec: Spec, versions: Mapping[str, str], names: set[str]) -> str:
    named = [f"{name}=={versions[name]}" for name in versions if name in names]
    text = canonical(spec)
    return ",".join([*([text] if text != "this" or not named else []), *named])


def _without_what_follows(changed: set[str], versions: Mapping[str, str]) -> set[str]:
    """Return the package that requires all other changed ones, as torch does torchvision; else all of them."""
    for name in sorted(changed, key=lambda name: (name != "torch", name)):
        if len(changed) > 1 and {*choose({name: versions[name]}).free, name} >= changed:
            return {name}
    return changed
