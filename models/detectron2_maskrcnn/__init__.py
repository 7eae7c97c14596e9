"""Mask R-CNN (He et al., 2017, arXiv:1703.06870) on ResNet-50-FPN: Detectron2's LazyConfig.

The same network as detectron2_maskrcnn_r_50_fpn (Wu et al., 2019, https://github.com/facebookresearch/detectron2,
`configs/common/models/mask_rcnn_fpn.py`), trained at that configuration's learning rate of 0.02.

Random weights are set up to give the work of trained ones (`torchzoo/networks/detection_init.py`): of 1000 proposals,
about 900 boxes enter NMS and 100 detections with masks are kept; training samples 512 regions, of which 40 to 50 are
objects at first.
"""

from torchzoo.networks.rcnn import DetectronRCNN


class Model(DetectronRCNN):
    depth = 50
    features = "fpn"
    with_masks = True
    learning_rate = 0.02
