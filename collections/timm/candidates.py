"""Which architectures the table of this collection is made of, and what is known of them before they are built."""

import timm
from torch import Tensor

#: The largest batch of an architecture that is not in `BY_BATCH`: that of most models of PyTorch's `benchmarks/dynamo`.
LARGEST_BATCH = 128

#: The batches of PyTorch's `benchmarks/dynamo`: of its list of 2025 (timm_models_list.txt), and for architectures that
#: it no longer has, of its list of 2024; divided as timm_models.py of that time divides them. The table halves them
#: where a training step at fp32 would not fit into 80 GB: vit_base_patch14_dinov2 is trained with 64.
BY_BATCH = {
    4: "cait_m36_384",
    16: "pnasnet5large xcit_large_24_p8_224",
    32: "convmixer_768_32 jx_nest_base swsl_resnext101_32x16d xception65",  # xception65 is gluon_xception65 there
    64: """
        beit_base_patch16_224 convit_base convnext_base cspdarknet53 deit_base_distilled_patch16_224 dpn107 mobilevit_s
        pit_b_224 poolformer_m36 resnest101e sebotnet33ts_256 swin_base_patch4_window7_224 vit_base_patch16_224
        volo_d1_224
    """,
    128: """
        adv_inception_v3 botnet26t_256 coat_lite_mini convnextv2_nano deit_tiny_patch16_224 dla102 dm_nfnet_f0
        eca_botnext26ts_256 eca_halonext26ts gernet_l gmixer_24_224 gmlp_s16_224 hrnet_w18 inception_v3 mixer_b16_224
        mixnet_l mobilenetv2_100 nfnet_l0 repvgg_a2 res2net101_26w_4s res2net50_14w_8s res2next50 resmlp_12_224
        selecsls42b spnasnet_100 tf_efficientnet_b0 tf_mixnet_l tinynet_a tnt_s_patch16_224 twins_pcpvt_base
        visformer_small vit_base_patch14_dinov2 vit_base_patch16_siglip_256
    """,
    256: "crossvit_9_240 ese_vovnet19b_dw fbnetv3_b gluon_inception_v3 lcnet_050 rexnet_100",
    512: "fbnetc_100 ghostnet_100 mnasnet_100 mobilenetv3_large_100",
    1024: "levit_128 regnety_002",
}
BATCHES = {name: batch for batch, names in BY_BATCH.items() for name in names.split()}

#: Names of these lists under which timm still builds, but which it no longer lists.
OLD_NAMES = ("adv_inception_v3", "gluon_inception_v3", "jx_nest_base", "swsl_resnext101_32x16d")


def names() -> list[str]:
    """All architectures that timm lists, and old names of some."""
    return sorted([*timm.list_models(), *OLD_NAMES])


def batch_size(name: str) -> int | None:
    """The batch of PyTorch's `benchmarks/dynamo`."""
    return BATCHES.get(name)


def cells(_: str, inputs: tuple[Tensor]) -> dict[str, object]:
    """What stands in the table for people: the size of an image."""
    return {"input": "x".join(map(str, inputs[0].shape[1:]))}


def row(_: str) -> None:
    """No architecture's line is given: all are looked at."""


def other_work(_: str) -> None:
    """Every architecture that builds classifies images."""
