"""Mask R-CNN (He et al., 2017, arXiv:1703.06870) on ResNet-50-FPN: Detectron2's LazyConfig.

The same network as detectron2_maskrcnn_r_50_fpn (Wu et al., 2019, https://github.com/facebookresearch/detectron2), as
`configs/common/models/mask_rcnn_fpn.py` describes it: nothing is frozen but BatchNorm. It is trained with the SGD of
`configs/common/optim.py`: learning rate 0.02, momentum 0.9, weight decay 1e-4. (TorchBench takes the same network, and
SGD at a learning rate of 0, which updates nothing.)

Random weights are set up to give the work of trained ones (`models/_shared/detection_init.py`): of 1000 proposals,
about 900 boxes enter NMS and 100 detections with masks are kept. Training samples 512 regions, of which 128 are objects
and get masks (`models/_shared/regions.py`).
"""

from .._shared.rcnn import DetectronRCNN


class Model(DetectronRCNN):
    depth = 50
    features = "fpn"
    freezes_stem = False
    with_masks = True
    learning_rate = 0.02
