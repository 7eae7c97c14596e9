"""The software of two nights as two SPECs, so that an A/B and a bisection can hold them against each other."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from torchzoo.analysis.series import software_changes
from torchzoo.history.kept_versions import choose
from torchzoo.history.specs import Spec, canonical, parse
from torchzoo.provenance import software_facts
from torchzoo.record import Manifest
from torchzoo.zoo.requirements import distribution_name

#: Facts that follow from the version of torch.
_OF_TORCH = frozenset({"torch_commit", "cuda", "hip", "cudnn"})
#: Facts of a run that are no software.
_NO_SOFTWARE = frozenset({"threads", "compile caches", "workers", "GPUs"})


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """Two nights as two SPECs. If `why_not` is given, they can't be measured beside each other, or need not be."""

    base: str = ""
    candidate: str = ""
    good: str = ""  # the same two for a bisection. They differ in what the SPECs of the nights name, if they differ
    bad: str = ""  # there; else in the versions of packages
    is_part: bool = False  # more changed than what `good` and `bad` differ in
    is_same: bool = False  # the software of both nights is equal
    why_not: str = ""
    rest: tuple[str, ...] = ()  # what else differs, and no SPEC brings back


def sides_of(base_spec: str, base: Manifest, tonight_spec: str, tonight: Manifest) -> Sides:
    """The SPECs that bring back the software of two nights.

    Where packages changed that no SPEC names, as in an environment that is kept up to date, the base names them with
    their old versions.

    Args:
        base_spec: the software of the base night, in full.
        base: the manifest of its run.
        tonight_spec: the same of tonight.
        tonight: the manifest of its run.

    Raises:
        UsageError: a SPEC names what is not there any more.
    """
    facts = [
        {name: value for name, value in software_facts(one).items() if name not in _NO_SOFTWARE}
        for one in (base, tonight)
    ]
    changes = {change.name for change in software_changes(*facts)}
    if base_spec == tonight_spec and not changes:
        return Sides(is_same=True, why_not="the software is the same, so the change can't be the software's")
    specs = parse(base_spec), parse(tonight_spec)
    if any(spec.python is not None for spec in specs):
        if base_spec == tonight_spec:
            why = f"{', '.join(sorted(changes))} changed, and the Python of both nights is the same: {base_spec}"
            return Sides(why_not=f"{why}. Give each night an environment of its own")
        return Sides(base=base_spec, candidate=tonight_spec, good=base_spec, bad=tonight_spec)
    named = {*specs[0].wanted, *specs[1].wanted}
    versions = [_packages(one) for one in (base, tonight)]
    changed = [name for name in versions[0] if versions[0][name] != versions[1].get(name) and name not in named]
    rest = {name for name in changes if distribution_name(name) not in {*changed, *named}}
    rest -= {*specs[0].variables, *specs[1].variables}
    rest -= _OF_TORCH if "torch" in {*changed, *named} else set()
    if base_spec == tonight_spec and not changed:
        why = f"{', '.join(sorted(rest))} changed, and no SPEC brings back the old one"
        return Sides(why_not=why, rest=tuple(sorted(rest)))
    main = _main(changed, versions[0]) if base_spec == tonight_spec else []
    return Sides(
        base=_with(specs[0], {name: versions[0][name] for name in changed}),
        candidate=tonight_spec,
        good=_with(specs[0], {name: versions[0][name] for name in main}),
        bad=_with(specs[1], {name: versions[1][name] for name in main if name in versions[1]}),
        is_part=bool(changed) and base_spec != tonight_spec,
        rest=tuple(sorted(rest)),
    )


def _packages(manifest: Manifest) -> dict[str, str]:
    """The versions of torch and of the other packages of a run, by normalised name."""
    environment = manifest.environment
    found = {"torch": environment.get("torch"), **(environment.get("packages") or {})}
    return {distribution_name(name): str(version) for name, version in found.items() if version}


def _with(spec: Spec, packages: Mapping[str, str]) -> str:
    """The SPEC with these packages at these versions, too."""
    text = canonical(spec)
    named = [f"{name}=={version}" for name, version in packages.items()]
    return ",".join([*([text] if text != "this" or not named else []), *named])


def _main(changed: list[str], versions: Mapping[str, str]) -> list[str]:
    """The changed packages without those that had to change because another one did, as torchvision does with torch."""
    if len(changed) < 2:
        return changed
    for name in sorted(changed, key=lambda name: name != "torch"):
        tied = set(choose({name: versions[name]}).free) | {name}
        if tied >= set(changed):
            return [name]
    return changed
