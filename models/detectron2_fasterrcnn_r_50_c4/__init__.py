"""Faster R-CNN (Ren et al., 2015, arXiv:1506.01497) on ResNet-50-C4, as Detectron2 builds it.

Proposals and regions come from the fourth ResNet stage; the fifth is the head that every region passes.

Random weights are set up to give the work of trained ones (`models/_shared/detection_init.py`): of 1000 proposals,
500 to 900 boxes enter NMS and 100 detections are kept. Training samples 512 regions, of which 128 are objects
(`models/_shared/regions.py`).
"""

from .._shared.rcnn import DetectronRCNN


class Model(DetectronRCNN):
    depth = 50
    features = "c4"
