"""The import law: what only reads or shows never imports torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_TORCH = (
    "spec record stats store catalog backends plan install worker scheduler environment "
    "report.units report.rows report.tables report.progress cli "
    "compare report.comparison report.noise report.exports commands.compare commands.noise commands.export "
    "userbenchmark report.markdown commands.userbenchmark leaks report.compilation report.growth "
    "report.breakdown report.throttling peaks roofline report.work commands.peaks"
)


def test_what_only_reads_or_shows_does_not_import_torch() -> None:
    code = f"""
import importlib, sys
for name in {WITHOUT_TORCH.split()}:
    importlib.import_module("torchzoo." + name)
    assert not {{"torch", "pandas"}} & set(sys.modules), name
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["list"], ["list", "--json"]])
def test_list_answers_without_torch(command: list[str]) -> None:
    code = f"import sys; from torchzoo.cli import main; main({command}); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "resnet18" in done.stdout
