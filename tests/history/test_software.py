"""The software of two nights as two SPECs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import environment, manifest
from torchzoo.environments.pins import Requirements
from torchzoo.errors import UsageError
from torchzoo.history import software
from torchzoo.history.software import sides_of
from torchzoo.record import Manifest


def of(torch: str = "2.15.0", **changes: Any) -> Manifest:
    packages = {"timm": "1.0.19", "numpy": "2.0"}
    return manifest(environment=environment(**{"torch": torch, "packages": packages, **changes}))


def why_not(*nights: Any) -> str:
    with pytest.raises(UsageError) as refused:
        sides_of(*nights)
    return str(refused.value)


def test_equal_software() -> None:
    assert why_not("this", of(), "this", of()).startswith("no recorded software changed")
    assert sides_of("A=1", of(), "A=2", of()).base == "A=1"


def test_packages_that_changed_are_named_at_their_old_versions() -> None:
    found = sides_of("this", of("2.14.0", torch_commit="a"), "this", of("2.15.0", torch_commit="b"))
    assert (found.base, found.candidate, found.rest) == ("torch==2.14.0", "this", ())
    assert (found.good, found.bad) == ("torch==2.14.0", "torch==2.15.0")
    found = sides_of("A=1", of(packages={"timm": "1.0.18"}), "A=2", of(packages={"timm": "1.0.19"}))
    assert (found.base, found.candidate, found.good) == ("A=1,timm==1.0.18", "A=2", "A=1")
    found = sides_of("A=1", of(packages={"timm": "1.0.18"}), "A=1", of(packages={"timm": "1.0.19"}))
    assert (found.good, found.bad) == ("A=1,timm==1.0.18", "A=1,timm==1.0.19")


def test_the_index_of_both_nights_is_kept() -> None:
    index = "index=https://example.org/nightly"
    found = sides_of(index, of("2.16.0.dev20261101"), index, of("2.16.0.dev20261102"))
    assert (found.base, found.candidate) == (f"{index},torch==2.16.0.dev20261101", index)
    assert (found.good, found.bad) == (found.base, f"{index},torch==2.16.0.dev20261102")


def test_what_follows_another_package_is_left_out_of_a_bisection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "choose", lambda _: Requirements(asked=(), constraints=(), free=("torchvision",)))
    old = of("2.14.0", packages={"torchvision": "0.29.0"})
    new = of("2.15.0", packages={"torchvision": "0.30.0"})
    found = sides_of("this", old, "this", new)
    assert found.base == "torch==2.14.0,torchvision==0.29.0"
    assert (found.good, found.bad) == ("torch==2.14.0", "torch==2.15.0")


def with_all(torch: str = "2.15.0", **distributions: str) -> Manifest:
    """A run whose manifest has all distributions, by names with `_`."""
    named = {name.replace("_", "-"): version for name, version in distributions.items()}
    everything = {"torch": torch, "torchzoo": "0.2.0", "timm": "1.0.19", "numpy": "2.0", **named}
    return of(torch, distributions=everything, packages={name: everything[name] for name in ("timm", "numpy")})


def test_any_distribution_that_changed_is_a_change_of_the_software() -> None:
    found = sides_of("this", with_all(effdet="0.4.0"), "this", with_all(effdet="0.4.1"))
    assert (found.base, found.candidate) == (found.good, "this") == ("effdet==0.4.0", "this")
    assert (found.bad, found.is_part, found.rest) == ("effdet==0.4.1", False, ())
    same = with_all(effdet="0.4.1"), with_all(effdet="0.4.1")
    assert why_not("this", same[0], "this", same[1]).startswith("no recorded software changed")


def test_a_bisection_goes_over_the_main_packages_and_the_rest_is_more_that_changed() -> None:
    found = sides_of("this", with_all(timm="1.0.18", tqdm="4.1"), "this", with_all(timm="1.0.19", tqdm="4.2"))
    assert set(found.base.split(",")) == {"timm==1.0.18", "tqdm==4.1"}
    assert (found.good, found.bad, found.is_part) == ("timm==1.0.18", "timm==1.0.19", True)


def test_libraries_that_follow_torch_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    free = ("nvidia-cublas", "torch")
    monkeypatch.setattr(software, "choose", lambda _: Requirements(asked=(), constraints=(), free=free))
    found = sides_of("this", with_all("2.14.0", nvidia_cublas="13.1"), "this", with_all("2.15.0", nvidia_cublas="13.2"))
    assert (found.base, found.good, found.bad) == ("torch==2.14.0", "torch==2.14.0", "torch==2.15.0")
    assert (found.is_part, found.rest) == (False, ())


def test_new_distributions_and_our_own_have_no_old_version_to_name() -> None:
    reason = why_not("this", with_all(), "this", with_all(xformers="1", torchzoo="0.3.0"))
    assert reason == "xformers changed, and no SPEC brings back the old one"


def test_what_no_spec_brings_back() -> None:
    reason = why_not("this", of(python="3.11.1"), "this", of(python="3.11.2"))
    assert reason == "python changed, and no SPEC brings back the old one"
    found = sides_of("this", of("2.14.0", python="3.11.1"), "this", of("2.15.0", python="3.11.2"))
    assert found.rest == ("python",)
    found = sides_of("OMP_X=1", of(variables={"OMP_X": "1"}), "OMP_X=2", of(variables={"OMP_X": "2"}))
    assert (found.base, found.candidate, found.rest) == ("OMP_X=1", "OMP_X=2", ())


def test_a_python_that_was_changed_in_place(tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    (tmp_path / "other").touch()
    spec, other = (f"python={tmp_path / name}" for name in ("python", "other"))
    assert why_not(spec, of(), spec, of()).startswith("no recorded software changed")
    assert "Give each night an environment of its own" in why_not(spec, of("2.14.0"), spec, of())
    assert sides_of(spec, of("2.14.0"), other, of()).base == spec
