"""What the tests of measuring share."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import torch._dynamo

from torchzoo.measure.compilation import CompilationWatch


@pytest.fixture(autouse=True)
def _cheap_collections() -> Iterator[None]:
    """Keep what is alive before a test out of its garbage collections: measuring makes many of them."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _dynamo_as_it_was() -> Iterator[None]:
    """Nothing that a test compiled, and nobody who counts it, is there in the next."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    for name in list(logging.Logger.manager.loggerDict):
        logger = logging.getLogger(name)
        for handler in [one for one in logger.handlers if isinstance(one, CompilationWatch)]:
            logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def _pytorch_flags_as_they_were() -> Iterator[None]:
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn


@pytest.fixture
def float8_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU counts as a device with float8: PyTorch has products in it there, too."""
    from torchao.quantization import quant_api

    from torchzoo.measure import precision

    monkeypatch.setattr(precision, "require_support", lambda *_: None)
    monkeypatch.setattr(quant_api, "_check_hardware_support", lambda _: None)
