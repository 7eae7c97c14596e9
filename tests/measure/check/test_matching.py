"""Detections are compared as sets."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torchzoo.measure.check.matching import Detections, from_dict, from_rows, unmatched_share


def detections(count: int = 20) -> Detections:
    generator = torch.Generator().manual_seed(1)
    corner = torch.rand(count, 2, generator=generator, dtype=torch.float64) * 500
    extent = 20 + torch.rand(count, 2, generator=generator, dtype=torch.float64) * 100
    scores = torch.linspace(0.9, 0.2, count, dtype=torch.float64)
    return Detections(torch.cat([corner, corner + extent], 1), scores, torch.arange(count) % 3)


def test_detections_in_another_order_are_the_same_set() -> None:
    one = detections()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    assert unmatched_share(Detections(one.boxes[order], one.scores[order], one.labels[order]), one) == 0


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda d: Detections(d.boxes[1:], d.scores[1:], d.labels[1:]), 1 / 39),
        (lambda d: d._replace(boxes=d.boxes + torch.tensor([40.0, 0, 40, 0]) * (torch.arange(20) == 3)[:, None]), 0.05),
        (lambda d: d._replace(labels=d.labels + 3 * (torch.arange(20) == 3)), 0.05),
        (lambda d: d._replace(scores=d.scores - 0.1 * (torch.arange(20) == 3)), 0.05),
        (lambda d: d._replace(boxes=d.boxes * math.nan), 1.0),
    ],
    ids=["missing", "shifted", "label", "score", "nan"],
)
def test_a_detection_that_is_missing_or_another_has_no_partner(
    change: Callable[[Detections], Detections], share: float
) -> None:
    assert unmatched_share(change(detections()), detections()) == pytest.approx(share)


def test_masks_of_matched_boxes_must_overlap() -> None:
    mask = torch.full((1, 1, 10, 10), 0.2)
    mask[0, 0, :8, :8] = 0.7
    found = {"boxes": torch.tensor([[0.0, 0, 8, 8]]), "scores": torch.ones(1), "labels": torch.ones(1), "masks": mask}
    one = from_dict(found)
    assert one.masks is not None
    assert one.masks.sum() == 64
    assert unmatched_share(one, one) == 0
    assert unmatched_share(from_dict({**found, "masks": mask.flip(2)}), one) == 1
    assert unmatched_share(from_dict({**found, "masks": torch.zeros_like(mask)}), one) == 1


def test_rows_of_score_zero_are_padding() -> None:
    found = from_rows(torch.tensor([[0.0, 0, 1, 1, 0.5, 7], [0, 0, 0, 0, 0, 0]]))
    assert (len(found.boxes), found.labels.tolist()) == (1, [7])
