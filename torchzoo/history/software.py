"""Express the software of two nights as two SPECs, for an A/B and a bisection."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from torchzoo.analysis.series import software_changes
from torchzoo.environments.parsing import Spec, canonical, parse
from torchzoo.environments.pins import choose
from torchzoo.machine.differences import software_facts
from torchzoo.record import Manifest
from torchzoo.report.units import first_few
from torchzoo.zoo.requirements import distribution_name

#: Facts that follow from the version of torch.
_OF_TORCH = frozenset({"torch_commit", "cuda", "hip", "cudnn"})
#: Facts of a run that are not about software.
_NO_SOFTWARE = frozenset({"threads", "compile caches", "compile threads", "workers", "GPUs"})


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """Two nights as two SPECs. If `why_not` is given, they can't be measured in turns."""

    base: str = ""
    candidate: str = ""
    good: str = ""  # the two SPECs for a bisection. They differ in what the SPECs of the nights name, if these differ,
    bad: str = ""  # else in the versions of packages
    is_part: bool = False  # whether more changed than `good` and `bad` differ in
    why_not: str = ""
    rest: tuple[str, ...] = ()  # other differences, which no SPEC restores


def sides_of(base_spec: str, base: Manifest, tonight_spec: str, tonight: Manifest) -> Sides:
    """Return the SPECs that restore the software of two nights.

    If packages changed that no SPEC names, as in an environment that is kept up to date, the base names them with their
    old versions.

    Args:
        base_spec: the software of the base night, in full.
        base: the manifest of its run.
        tonight_spec: the software of tonight, in full.
        tonight: the manifest of its run.

    Raises:
        UsageError: a SPEC names something that does not exist any more.
    """
    facts = [
        {name: value for name, value in software_facts(one).items() if name not in _NO_SOFTWARE}
        for one in (base, tonight)
    ]
    mains = {"torch", *map(distribution_name, base.environment.packages)}
    versions = _versions(base, tonight)
    changes = {change.name for change in [*software_changes(*facts), *software_changes(*versions)]}
    if base_spec == tonight_spec and not changes:
        return Sides(why_not="no recorded software changed, so there is nothing to measure in turns")
    specs = parse(base_spec), parse(tonight_spec)
    if any(spec.python is not None for spec in specs):
        if base_spec == tonight_spec:
            which = first_few(sorted(changes))
            why = f"{which} changed, and the Python of both nights is the same: {base_spec}"
            return Sides(why_not=f"{why}. Give each night an environment of its own")
        return Sides(base=base_spec, candidate=tonight_spec, good=base_spec, bad=tonight_spec)
    named = {*specs[0].wanted, *specs[1].wanted}
    changed = [name for name in versions[0] if versions[0][name] != versions[1].get(name) and name not in named]
    # An installer chooses the dependencies of the main packages, such as torch's CUDA libraries.
    asked = {name: versions[0].get(name) for name in {*changed, *named} if name in mains or name in named}
    follow = set(choose(asked).free) - mains if set(changed) - mains else set()
    changed = [name for name in changed if name not in follow]
    rest = {name for name in changes if distribution_name(name) not in {*changed, *named, *follow}}
    rest -= {*specs[0].variables, *specs[1].variables}
    rest -= _OF_TORCH if "torch" in {*changed, *named} else set()
    if base_spec == tonight_spec and not changed:
        which = first_few(sorted(rest or changes))
        return Sides(why_not=f"{which} changed, and no SPEC brings back the old one", rest=tuple(sorted(rest)))
    varied = ([name for name in changed if name in mains] or changed) if base_spec == tonight_spec else []
    main = _main(varied, versions[0])
    return Sides(
        base=_with(specs[0], {name: versions[0][name] for name in changed}),
        candidate=tonight_spec,
        good=_with(specs[0], {name: versions[0][name] for name in main}),
        bad=_with(specs[1], {name: versions[1][name] for name in main if name in versions[1]}),
        is_part=len(varied) < len(changed),
        rest=tuple(sorted(rest)),
    )


def _versions(base: Manifest, tonight: Manifest) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of torch and all other packages of two runs, by normalised name.

    If not all packages of both are known, only the main packages count.
    """
    environments = (base.environment, tonight.environment)
    are_all_known = all(environment.distributions is not None for environment in environments)
    found = []
    for environment in environments:
        versions = {**(environment.distributions or {})} if are_all_known else {}
        versions |= {"torch": environment.torch, **environment.packages}
        found.append(
            {
                distribution_name(name): version
                for name, version in versions.items()
                if name != "torchzoo"  # both sides run this torchzoo
            }
        )
    return found[0], found[1]


def _with(spec: Spec, packages: Mapping[str, str]) -> str:
    """Return the SPEC with these packages at these versions added."""
    text = canonical(spec)
    named = [f"{name}=={version}" for name, version in packages.items()]
    return ",".join([*([text] if text != "this" or not named else []), *named])


def _main(changed: list[str], versions: Mapping[str, str]) -> list[str]:
    """Return the changed packages without those that another change requires, as torch does torchvision."""
    if len(changed) < 2:
        return changed
    for name in sorted(changed, key=lambda name: name != "torch"):
        tied = set(choose({name: versions[name]}).free) | {name}
        if tied >= set(changed):
            return [name]
    return changed
