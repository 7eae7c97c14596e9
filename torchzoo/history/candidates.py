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

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchzoo.environments.parsing import parse, run_without_input
from torchzoo.errors import UsageError, nearest, one_line

#: Seconds that pip or git may take. An index on the network can be slow.
PATIENCE_S = 300.0
#: A dated nightly: `2.16.0.dev20261101`, `2.16.0.dev20261101+cpu`.
_NIGHTLY = re.compile(r"\.dev\d{8}(\+.*)?$")
SHORT_COMMIT = 10  # characters of a commit's name to show


class NothingBetween(UsageError):
    """The bad version follows the good one directly, and is therefore the first bad one."""


class Release(msgspec.Struct, frozen=True):
    """`torch==2.14.1`. The other parts of the SPEC are the same for all candidates."""

    package: str
    version: str
    others: tuple[str, ...] = ()

    def spec(self, version: str) -> str:
        return ",".join([f"{self.package}=={version}", *self.others])


class Commit(msgspec.Struct, frozen=True):
    """`timm@/src/timm:abc123`: a package, the folder of its checkout, and a commit. `others` is as in `Release`."""

    package: str
    checkout: str
    commit: str
    others: tuple[str, ...] = ()

    def spec(self, commit: str) -> str:
        return ",".join([f"{self.package}@{self.checkout}:{commit}", *self.others])


def candidates(good: str, bad: str, *, pre_releases: bool = False) -> tuple[str, ...]:
    """Return the SPECs from `good` to `bad`, in order, both included.

    If one of the two is a dated nightly, the versions between are nightlies, else they are releases.

    Args:
        good: a SPEC such as `torch==2.11.0`, or `timm@/src/timm:v1.0.0`.
        bad: another SPEC of the same package. Parts behind a comma must be the same in both.
        pre_releases: whether release candidates and the like are candidates, too.

    Raises:
        UsageError: these are no two versions of one package, one of them does not exist, the good one is not older, or
            none is between them (`NothingBetween`).
    """
    if good == bad:
        raise UsageError(f"good and bad are the same: {good}")
    commits, releases = _commits(good, bad), _releases(good, bad)
    if commits is not None:
        between = _between_commits(*commits)
    elif releases is not None:
        between = _between_releases(*releases, parse(good).indexes, pre_releases=pre_releases)
    else:
        raise UsageError(
            f"can't find what lies between {good} and {bad}: write two versions of one package (torch==2.11.0 and "
            "torch==2.14.1), or two commits of one checkout (timm@/src/timm:COMMIT)"
        )
    if len(between) == 2:
        raise NothingBetween(f"nothing lies between {good} and {bad}: so the first bad one is {bad}")
    return between


def short_name(spec: str) -> str:
    """Return a SPEC for a line of a table: `2.14.1`, or the first characters of a commit's name."""
    commit = _as_commit(spec)
    if commit is not None:
        return commit.commit[:SHORT_COMMIT]
    package = _first_package(spec)
    return package[1] if package is not None else spec


def package_of(spec: str) -> str:
    """Return the package whose version or commit a SPEC names first: `timm`; the whole SPEC if it names none."""
    commit = _as_commit(spec)
    if commit is not None:
        return commit.package
    package = _first_package(spec)
    return package[0] if package is not None else spec


def about_commit(spec: str) -> str:
    """Return a commit's author, date and subject: `Ada Lovelace, 2026-11-01: Faster layers`. Empty for a version."""
    commit = _as_commit(spec)
    if commit is None:
        return ""
    shown = _git(commit.checkout, "show", "-s", "--format=%an, %as: %s", commit.commit)
    return one_line(shown.stdout) if shown.returncode == 0 else ""


# --- commits ---


def _parts(spec: str) -> list[str]:
    """Return the parts of a SPEC between commas, with packages and versions in one spelling."""
    parts = [part.strip() for part in re.split(r"(?<!\\),", spec)]
    named = [_package_and_version(part) for part in parts]
    return ["==".join(package) if package is not None else part for part, package in zip(parts, named, strict=True)]


def _changed(good: str, bad: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the one part in which two SPECs differ, of both, and the parts that they share; None if more differ."""
    first, last = _parts(good), _parts(bad)
    was, now = [part for part in first if part not in last], [part for part in last if part not in first]
    return (was[0], now[0], tuple(part for part in first if part in last)) if len(was) == len(now) == 1 else None


def _first_package(spec: str) -> tuple[str, str] | None:
    return next(filter(None, map(_package_and_version, _parts(spec))), None)


def _as_commit(spec: str) -> Commit | None:
    """Return the first part of a SPEC that names a commit."""
    for part in _parts(spec):
        package, at, rest = part.partition("@")
        checkout, colon, commit = rest.rpartition(":")
        if at and colon and checkout and commit and "=" not in package:
            return Commit(package, checkout, commit)
    return None


def _commits(good: str, bad: str) -> tuple[Commit, Commit] | None:
    changed = _changed(good, bad)
    if changed is None:
        return None
    first, last = _as_commit(changed[0]), _as_commit(changed[1])
    if first is None or last is None:
        return None
    is_one = (first.package, _resolved(first.checkout)) == (last.package, _resolved(last.checkout))
    return (msgspec.structs.replace(first, others=changed[2]), last) if is_one else None


def _resolved(path: str) -> Path:
    return Path(path).expanduser().resolve()


def _between_commits(good: Commit, bad: Commit) -> tuple[str, ...]:
    checkout = str(_resolved(good.checkout))
    first, last = (_full_name(one, checkout) for one in (good, bad))
    if first == last:
        raise UsageError(f"good and bad are the same commit: {first}")
    if _git(checkout, "merge-base", "--is-ancestor", first, last).returncode != 0:
        is_newer = _git(checkout, "merge-base", "--is-ancestor", last, first).returncode == 0
        why = "it is newer: exchange them" if is_newer else "the two have no common line"
        raise UsageError(f"the good commit {good.commit} is not an ancestor of the bad commit {bad.commit}: {why}")
    made = Commit(good.package, checkout, first, good.others)
    return tuple(map(made.spec, _line(checkout, first, last)))


def _line(checkout: str, first: str, last: str) -> list[str]:
    """Return the commits from `first` to `last`, each a descendant of the one before, so that changes persist.

    From a commit the line continues with the first of its parents that has `first`: along the main line as far as that
    has it, and then into the branch from which it came.
    """
    listed = _git(checkout, "rev-list", "--parents", "--ancestry-path", f"{first}..{last}")
    if listed.returncode != 0:
        raise UsageError(f"git can't list the commits of {checkout}: {one_line(listed.stderr)}")
    parents = {commit: above for commit, *above in map(str.split, listed.stdout.splitlines())}
    line = [last]
    while line[-1] != first:
        line.append(next(commit for commit in parents[line[-1]] if commit == first or commit in parents))
    return line[::-1]


def _full_name(commit: Commit, checkout: str) -> str:
    """Return the 40 characters of a commit's name, checked by git; branches may move while the search runs."""
    found = _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit.commit}^{{commit}}")
    if found.returncode == 0:
        return found.stdout.strip()
    if _git(checkout, "rev-parse", "--git-dir").returncode != 0:
        raise UsageError(f"{checkout} is no checkout of git")
    raise UsageError(f"{checkout} has no commit '{commit.commit}'")


def _git(checkout: str, *words: str) -> subprocess.CompletedProcess[str]:
    if not Path(checkout).is_dir():
        raise UsageError(f"there is no folder {checkout}")
    return _finished(["git", "-C", checkout, *words])


# --- releases and nightlies ---


def _releases(good: str, bad: str) -> tuple[Release, Release] | None:
    """Return the part in which two SPECs differ, if that is the version of one package alone."""
    changed = _changed(good, bad)
    if changed is None:
        return None
    first, last = _package_and_version(changed[0]), _package_and_version(changed[1])
    if first is None or last is None or first[0] != last[0]:
        return None
    return Release(*first, changed[2]), Release(*last, changed[2])


def _package_and_version(text: str) -> tuple[str, str] | None:
    package, equal, version = text.strip().partition("==")
    is_name = re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", package) is not None
    return (canonicalize_name(package), version.strip()) if equal and is_name else None


def _between_releases(good: Release, bad: Release, indexes: Sequence[str], *, pre_releases: bool) -> tuple[str, ...]:
    first, last = _version(good), _version(bad)
    if first >= last:
        raise UsageError(f"the good version {good.version} is not older than the bad version {bad.version}")
    with_pre = pre_releases or first.is_prerelease or last.is_prerelease
    offered = offered_versions(good.package, indexes, pre_releases=with_pre)
    _check_offered(first, good.package, offered)
    _check_offered(last, good.package, [one for one in offered if one > first] or offered)
    between = [one for one in offered if _public(first) < _public(one) < _public(last)]
    if any(_NIGHTLY.search(str(one)) for one in (first, last)):
        between = [one for one in between if _NIGHTLY.search(str(one))]
    elif not pre_releases:
        between = [one for one in between if not one.is_prerelease]
    chosen = one_of_each(between, prefer=last.local or first.local)
    return tuple(map(good.spec, [good.version, *map(str, chosen), bad.version]))


def _public(version: Version) -> Version:
    """Return the version without its local part: 2.16.0 for 2.16.0+cpu."""
    return Version(version.public)


def _version(release: Release) -> Version:
    try:
        return Version(release.version)
    except InvalidVersion as error:
        raise UsageError(f"'{release.version}' is no version of {release.package}: write one such as 2.14.1") from error


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
    """Return the versions of a package that pip finds, from the oldest to the newest.

    Args:
        package: its name.
        indexes: URLs of indexes in addition to pip's own.
        pre_releases: whether release candidates, nightlies and the like are versions, too.

    Raises:
        UsageError: there is no such package, or pip can't be run.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    command += ["--pre"] if pre_releases else []
    for url in indexes:
        command += ["--extra-index-url", url]
    done = _finished(command)
    where = " and ".join(["in its index", *indexes])
    if "No matching distribution" in done.stderr:
        raise UsageError(f"pip finds no package {package} {where} for this Python")
    if done.returncode != 0:
        raise UsageError(f"pip can't list the versions of {package}: {_last_line(done.stderr)}")
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if listed is None:
        raise UsageError(f"pip lists no versions of {package}: it needs `pip index`, so pip 21.2 or newer")
    return sorted(Version(word.strip()) for word in listed[1].split(","))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1].removeprefix("ERROR: ")) if lines else "it says nothing"


def _finished(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program that only reads, without a prompt for a password."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "PIP_NO_INPUT": "1", "LC_ALL": "C"}
    try:
        return run_without_input(command, environment, PATIENCE_S)
    except FileNotFoundError as error:
        raise UsageError(f"`{command[0]}` is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"`{' '.join(command[:6])}` took longer than {PATIENCE_S:g} s") from error
