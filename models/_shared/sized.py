"""The base of models that have two sizes: the published one, and a small one for a test on the CPU."""

from __future__ import annotations

from typing import Any, ClassVar

from torchzoo.model import Model


class SizedModel(Model):
    """A model whose networks are made from the arguments `sizes`. Where they are large, there is a small form, too."""

    #: The arguments of the networks' configuration, and those that are other ones in the small form.
    sizes: ClassVar[dict[str, Any]] = {}
    small_sizes: ClassVar[dict[str, Any]] = {}
    #: Other attributes of the class that have another value in the small form, such as the size of its data.
    small_data: ClassVar[dict[str, Any]] = {}

    @classmethod
    def small(cls) -> type[Model] | None:
        if not cls.small_sizes:
            return None
        return type("Small", (cls,), {"sizes": cls.sizes | cls.small_sizes, **cls.small_data})
