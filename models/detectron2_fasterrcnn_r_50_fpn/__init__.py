"""Faster R-CNN (Ren et al., 2015, arXiv:1506.01497) on ResNet-50-FPN, as Detectron2 builds it.

Proposals and regions come from a feature pyramid (Lin et al., 2016, arXiv:1612.03144).

Random weights are set up to give the work of trained ones (`models/_shared/detection_init.py`): of 1000 proposals,
about 900 boxes enter NMS and 100 detections are kept. Training samples 512 regions, of which 128 are objects
(`models/_shared/regions.py`).
"""

from .._shared.rcnn import DetectronRCNN


class Model(DetectronRCNN):
    depth = 50
    features = "fpn"
