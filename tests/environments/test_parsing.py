"""What the words for a software environment mean, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_packages import add_installed, make_repository, make_wheel
from torchzoo.environments.parsing import Checkout, Package, Wheel, canonical, parse, with_index
from torchzoo.errors import UsageError


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_installed(tmp_path / "site", "tztorch", "2.0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_a_spec_is_parsed(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a,b", "tz-x", "1.2+cpu")
    commits = make_repository(tmp_path / "lib", ["1.0", "2.0"])
    text = (
        f"TzTorch == 3.0 , {str(wheel).replace(',', chr(92) + ',')},tzlib@{tmp_path}/lib:{commits[0][:9]},A=b=c\\,d,E="
    )
    spec = parse(text)
    assert spec.packages == (Package(name="tztorch", version="3.0"),)
    assert spec.wheels == (Wheel(name="tz-x", version="1.2+cpu", path=str(wheel)),)
    assert spec.checkouts == (Checkout(name="tzlib", repository=f"{tmp_path}/lib", subfolder="", commit=commits[0]),)
    assert spec.variables == {"A": "b=c,d", "E": ""}
    assert spec.wanted == {"tztorch": "3.0", "tz-x": "1.2+cpu", "tzlib": None}
    assert parse(".").wanted == parse("this").wanted == parse("A=1").wanted == {}
    assert parse("python=/bin/sh,A=1").python == "/bin/sh"


def test_an_index_is_a_part_of_a_spec() -> None:
    text = with_index("this", "https://example.org/a,b")
    assert parse(text).indexes == ("https://example.org/a,b",)
    assert with_index(text, "https://example.org/a,b") == text
    assert canonical(parse(text)) == r"index=https://example.org/a\,b"
    assert with_index("python=/bin/sh", "https://example.org") == "python=/bin/sh"
    assert with_index("tztorch==2", None) == "tztorch==2"
    with pytest.raises(UsageError, match="is no URL"):
        with_index("tztorch==2", "nightly")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' has an empty part: write PACKAGE==VERSION, a wheel"),
        ("tztorch==2,,A=1", "empty part"),
        ("tztorch", "'tztorch' is no part of a software environment: write PACKAGE==VERSION, a wheel"),
        ("A=b,c", r"a comma inside a value is written \,"),
        ("tztorch>=2", "'tztorch>=2': a SPEC names one version: write tztorch==VERSION"),
        ("tztorch<2", "a SPEC names one version: write tztorch==VERSION"),
        ("https://example.org/tzx-1.0-py3-none-any.whl", "a wheel is a file on this machine: download it"),
        ("index=nightly", "index=nightly is no URL"),
        ("index=https://ada:secret@example.org/simple", "the index at example.org: records would show the password"),
        ("python=/bin/sh,index=https://example.org", "an existing Python is used as it is"),
        ("tztorch==2.*", "'2.*' is no version"),
        ("tztorch==", "'' is no version"),
        ("-x==1", "'-x' is no name of a package"),
        ("tztorch==1,tzTorch==2", "names the package tztorch twice"),
        ("A=1,A=2", "names the variable A twice"),
        ("1A=1", "'1A' is no name of a variable"),
        ("tztorch=2.0", "tztorch is a package: write tztorch==2.0"),
        ("/nowhere/tzx-1.0-py3-none-any.whl", "there is no wheel /nowhere/tzx-1.0"),
        ("{tmp}/bad.whl", "has no name of a wheel"),
        ("python=/nowhere/python", "there is no such file"),
        ("python=/bin/sh,tztorch==1", "an existing Python is used as it is"),
        ("tzlib@/nowhere:abc", "there is no folder /nowhere"),
        ("tzlib@{tmp}/lib", "names no commit"),
        ("tzlib@{tmp}/lib:--all", "names no commit"),
        ("tzlib@{tmp}/lib:abcdef", "has no commit 'abcdef'"),
        ("tzlib@/usr:abcdef", "can't be used: fatal: not a git repository"),
    ],
)
def test_a_wrong_spec_is_one_line_that_says_what_to_do(text: str, words: str, tmp_path: Path) -> None:
    make_repository(tmp_path / "lib", ["1.0"])
    (tmp_path / "bad.whl").write_text("")
    with pytest.raises(UsageError) as error:
        parse(text.replace("{tmp}", str(tmp_path)))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
