"""Mask R-CNN (He et al., 2017, arXiv:1703.06870) on ResNet-101-C4, as Detectron2 builds it.

Proposals and regions come from the fourth ResNet stage; the fifth is the head that every region passes, for box and
mask.

Random weights are set up to give the work of trained ones (`models/_shared/detection_init.py`): of 1000 proposals,
500 to 900 boxes enter NMS and 100 detections with masks are kept. Training samples 512 regions, of which 128 are
objects and get masks (`models/_shared/regions.py`).
"""

from .._shared.rcnn import DetectronRCNN


class Model(DetectronRCNN):
    depth = 101
    features = "c4"
    with_masks = True
