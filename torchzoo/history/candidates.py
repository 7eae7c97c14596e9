"""List the versions between a good and a bad version: releases, nightlies, or commits, as SPECs in order.

Releases and nightlies are those that pip finds with its own configuration and the indexes of the SPECs, for this Python
and this platform. So a version that can't be installed here is no candidate. Commits are those that git has between
the two.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from torchzoo.environments.parsing import Checkout, Package, Spec, canonical, git, parse, run_without_input
from torchzoo.errors import UsageError, nearest, one_line

#: Seconds that pip may take. An index on the network can be slow.
PATIENCE_S = 300.0
#: A dated nightly: `2.16.0.dev20261101`, `2.16.0.dev20261101+cpu`.
_NIGHTLY = re.compile(r"\.dev\d{8}(\+.*)?$")
#: The parts of a SPEC in full that name a commit and a version: `timm@/src/timm:abc123`, `torch==2.14.1`.
_COMMIT = re.compile(r"(?:^|,)(?P<package>[\w.-]+)@(?P<checkout>.+?):(?P<version>[^,:]+)(?:,|$)")
_VERSION = re.compile(r"(?:^|,)(?P<package>[\w.-]+)==(?P<version>[^,]+)")
SHORT_COMMIT = 10  # characters of a commit's name to show


class NothingBetween(UsageError):
    """The bad version follows the good one directly, and is therefore the first bad one."""


def candidates(good: str, bad: str, *, pre_releases: bool = False) -> tuple[str, ...]:
    """Return the SPECs from `good` to `bad`, in order, both included.

    The two SPECs differ in one part, which names a version (`torch==2.11.0`) or a commit (`timm@/src/timm:v1.0.0`). If
    one of two versions is a dated nightly, those between are nightlies, else they are releases, and with `pre_releases`
    also release candidates and the like.
    """
    first, last = parse(good), parse(bad)
    if canonical(first) == canonical(last):
        raise UsageError(f"good and bad are the same: {canonical(first)}")
    parts = [{*spec.packages, *spec.checkouts} for spec in (first, last)]
    was, now = parts[0] - parts[1], parts[1] - parts[0]
    rest = [msgspec.structs.replace(spec, text="", packages=(), checkouts=()) for spec in (first, last)]
    found: Sequence[Package | Checkout] = ()
    if rest[0] == rest[1] and len(was) == len(now) == 1:
        match (*was, *now):
            case Package(name=name) as old, Package() as new if name == new.name:
                found = _between_releases(old, new, first.indexes, pre_releases=pre_releases)
            case Checkout() as old, Checkout() as new if msgspec.structs.replace(old, commit=new.commit) == new:
                found = _between_commits(old, new)
    if not found:
        raise UsageError(
            f"can't find what lies between {good} and {bad}: write two versions of one package (torch==2.11.0 and "
            "torch==2.14.1), or two commits of one checkout (timm@/src/timm:COMMIT)"
        )
    if len(found) == 2:
        raise NothingBetween(f"nothing lies between {good} and {bad}: so the first bad one is {bad}")
    return tuple(_with(first, one) for one in found)


def _with(spec: Spec, part: Package | Checkout) -> str:
    def exchanged(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part if one.name == part.name else one for one in parts)

    packages, checkouts = exchanged(spec.packages), exchanged(spec.checkouts)
    return canonical(msgspec.structs.replace(spec, packages=packages, checkouts=checkouts))


def _named(spec: str) -> re.Match[str] | None:
    return _COMMIT.search(spec) or _VERSION.search(spec)


def short_name(spec: str) -> str:
    """Return a SPEC for a line of a table: `2.14.1`, or the first characters of a commit's name."""
    named = _named(spec)
    if named is None:
        return spec
    return named["version"][:SHORT_COMMIT] if named.re is _COMMIT else named["version"]


def package_of(spec: str) -> str:
    """Return the package whose version or commit a SPEC names first: `timm`; the whole SPEC if it names none."""
    named = _named(spec)
    return spec if named is None else named["package"]


def about_commit(spec: str) -> str:
    """Return a commit's author, date and subject: `Ada Lovelace, 2026-11-01: Faster layers`. Empty for a version."""
    commit = _COMMIT.search(spec)
    if commit is None:
        return ""
    shown = git(Path(commit["checkout"]), "show", "-s", "--format=%an, %as: %s", commit["version"])
    return one_line(shown.stdout) if shown.returncode == 0 else ""


# --- commits ---


def _between_commits(good: Checkout, bad: Checkout) -> list[Checkout]:
    """Return the commits from `good` to `bad`, each a descendant of the one before, so that changes persist.

    From a commit the line continues with the first of its parents that has `good`: along the main line as far as that
    has it, and then into the branch from which it came.
    """
    repository, first, last = Path(good.repository), good.commit, bad.commit
    if git(repository, "merge-base", "--is-ancestor", first, last).returncode != 0:
        is_newer = git(repository, "merge-base", "--is-ancestor", last, first).returncode == 0
        why = "it is newer: exchange them" if is_newer else "the two have no common line"
        names = f"the good commit {first[:SHORT_COMMIT]} is not an ancestor of the bad commit {last[:SHORT_COMMIT]}"
        raise UsageError(f"{names}: {why}")
    listed = git(repository, "rev-list", "--parents", "--ancestry-path", f"{first}..{last}")
    if listed.returncode != 0:
        raise UsageError(f"git can't list the commits of {repository}: {one_line(listed.stderr)}")
    parents = {commit: above for commit, *above in map(str.split, listed.stdout.splitlines())}
    line = [last]
    while line[-1] != first:
        line.append(next(commit for commit in parents[line[-1]] if commit == first or commit in parents))
    return [msgspec.structs.replace(good, commit=commit) for commit in reversed(line)]


# --- releases and nightlies ---


def _between_releases(good: Package, bad: Package, indexes: Sequence[str], *, pre_releases: bool) -> list[Package]:
    first, last = Version(good.version), Version(bad.version)
    if first >= last:
        raise UsageError(f"the good version {first} is not older than the bad version {last}")
    with_pre = pre_releases or first.is_prerelease or last.is_prerelease
    offered = offered_versions(good.name, indexes, pre_releases=with_pre)
    _check_offered(first, good.name, offered)
    _check_offered(last, good.name, [one for one in offered if one > first] or offered)
    between = [one for one in offered if Version(first.public) < Version(one.public) < Version(last.public)]
    if any(_NIGHTLY.search(str(one)) for one in (first, last)):
        between = [one for one in between if _NIGHTLY.search(str(one))]
    elif not pre_releases:
        between = [one for one in between if not one.is_prerelease]
    chosen = one_of_each(between, prefer=last.local or first.local)
    return [Package(name=good.name, version=str(one)) for one in (first, *chosen, last)]


def _check_offered(version: Version, package: str, offered: Sequence[Version]) -> None:
    """Raise `UsageError` if there is no such version. Versions with another local part (`+cpu`) count."""
    if any(one.public == version.public for one in offered):
        return
    hint = nearest(str(version), map(str, offered), otherwise=f"the newest is {offered[-1]}")
    raise UsageError(f"pip finds no {package}=={version} for this Python: {hint}")


def one_of_each(versions: Iterable[Version], *, prefer: str | None) -> list[Version]:
    """Return the versions in order, each public version once: with the local part `prefer`, else without one."""
    kept: dict[str, Version] = {}
    for version in versions:
        known = kept.get(version.public)
        if known is None or version.local == prefer or (known.local != prefer and version.local is None):
            kept[version.public] = version
    return sorted(kept.values())


def offered_versions(package: str, indexes: Sequence[str] = (), *, pre_releases: bool = False) -> list[Version]:
    """Return the versions of a package that pip finds in its own indexes and these, from the oldest to the newest."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    command += ["--pre"] if pre_releases else []
    for url in indexes:
        command += ["--extra-index-url", url]
    try:
        done = run_without_input(command, {**os.environ, "PIP_NO_INPUT": "1", "LC_ALL": "C"}, PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"pip took longer than {PATIENCE_S:g} s to list the versions of {package}") from error
    if "No matching distribution" in done.stderr:
        where = " and ".join(["in its index", *indexes])
        raise UsageError(f"pip finds no package {package} {where} for this Python")
    if done.returncode != 0:
        *_, last = (done.stderr.strip() or "it says nothing").splitlines()
        raise UsageError(f"pip can't list the versions of {package}: {one_line(last.removeprefix('ERROR: '))}")
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if listed is None:
        raise UsageError(f"pip lists no versions of {package}: it needs `pip index`, so pip 21.2 or newer")
    return sorted(Version(word.strip()) for word in listed[1].split(","))
