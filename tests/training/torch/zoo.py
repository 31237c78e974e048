"""Nets of torchvision, timm and transformers, small: each a function that builds it, with its example inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training.torch.nets import CLASSES, torch

nn = torch.nn
Built = tuple[Any, tuple[Any, ...]]
VOCABULARY, LENGTH = 40, 8


class Logits(nn.Module):
    """A model of transformers as a module whose forward takes ids and returns the logits alone."""

    def __init__(self, model: Any, name: str = "input_ids", **options: Any) -> None:
        super().__init__()
        self.model, self.name, self.options = model, name, options

    def forward(self, inputs: Any) -> Any:
        return self.model(**{self.name: inputs}, **self.options).logits


class Pooled(nn.Module):
    """The mean of what an encoder makes of each position, and a dense layer."""

    def __init__(self, encoder: Any, width: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, CLASSES)

    def forward(self, inputs: Any) -> Any:
        return self.head(self.encoder(inputs).last_hidden_state.mean(1))


# -- torchvision --------------------------------------------------------------------------------
# Pixels of a side, where 64 are too few, or the net has a size of its own.
_SIDES = {"inception_v3": 96, "alexnet": 96, "maxvit_t": 224}
_FIXED = ("vit_", "swin_v2")
_AUXILIARY = {"googlenet": {"aux_logits": False, "init_weights": False}}
_AUXILIARY["inception_v3"] = _AUXILIARY["googlenet"]
# Of more than 150 million parameters; each has the operations of a smaller one of its family.
LARGE = ("convnext_large", "regnet_y_128gf", "vit_h_14", "vit_l_16", "vit_l_32")


def torchvision_net(name: str) -> Built:
    """A net of ``torchvision.models``, with small pictures."""
    import torchvision.models

    options = dict(_AUXILIARY.get(name, {}))
    side = _SIDES.get(name, 64)
    if name.startswith("vit_"):
        side = 56 if name.endswith("14") else 64
        options["image_size"] = side
    return torchvision.models.get_model(name, num_classes=CLASSES, **options), (
        torch.randn(2, 3, side, side),
    )


# -- timm ------------------------------------------------------------------------------------------
def timm_convnext() -> Built:
    """timm's ConvNeXt, with layers that are left out at random."""
    import timm

    net = timm.create_model(
        "convnext_atto", num_classes=CLASSES, drop_path_rate=0.1, depths=(1, 1, 2, 1), dims=(8, 16, 24, 32)
    )  # fmt: skip
    return net, (torch.randn(2, 3, 64, 64),)


# -- transformers ------------------------------------------------------------------------------
_SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": VOCABULARY, "max_position_embeddings": 32, "num_labels": CLASSES, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GPT = {
    "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": VOCABULARY,
    "num_labels": CLASSES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def _ids() -> Any:
    return torch.randint(3, VOCABULARY, (2, LENGTH))


def _pictures(side: int = 32) -> Any:
    return torch.randn(2, 3, side, side)


def _classifier(name: str, **sizes: Any) -> Callable[[], Built]:
    """``<name>ForSequenceClassification`` of sizes of its own."""

    def build() -> Built:
        import transformers

        config = getattr(transformers, f"{name}Config")(**{**_SIZES, **sizes})
        model = getattr(transformers, f"{name}ForSequenceClassification")(config)
        more = {"use_cache": False} if hasattr(config, "use_cache") else {}
        return Logits(model, **more), (_ids(),)

    return build


def _of_pictures(name: str, side: int = 32, **sizes: Any) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        given = {"image_size": side, "num_labels": CLASSES, **sizes}
        config = getattr(transformers, f"{name}Config")(**given)
        model = getattr(transformers, f"{name}ForImageClassification")(config)
        return Logits(model, "pixel_values"), (_pictures(side),)

    return build


def _encoder(model: str, config: str, width: int, **sizes: Any) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        found = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        return Pooled(found, width), (_ids(),)

    return build


def _xlnet() -> Built:
    from transformers import XLNetConfig, XLNetForSequenceClassification

    config = XLNetConfig(
        vocab_size=VOCABULARY, d_model=16, n_layer=2, n_head=2, d_inner=32, num_labels=CLASSES
    )
    return Logits(XLNetForSequenceClassification(config), use_mems=False), (_ids(),)


_PATCHES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "patch_size": 8,
}  # fmt: skip
_DECODER = {"num_key_value_heads": 1, "head_dim": 8}
TRANSFORMERS: dict[str, Callable[[], Built]] = {
    "albert": _classifier("Albert", embedding_size=8),
    "bert": _classifier("Bert"),
    "bloom": _classifier("Bloom", n_layer=2, n_head=2),
    "convbert": _classifier("ConvBert", embedding_size=16, head_ratio=1),
    "deberta-v2": _classifier(
        "DebertaV2", relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"], pooler_hidden_size=16
    ),
    "distilbert": _classifier("DistilBert", dim=16, n_layers=2, n_heads=2, hidden_dim=32),
    "electra": _classifier("Electra", embedding_size=8),
    "ernie": _classifier("Ernie"),
    "gemma": _classifier("Gemma", **_DECODER),
    "gpt2": _classifier("GPT2", **_GPT),
    "gpt-neo": _classifier("GPTNeo", num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]]),
    "gpt-neox": _classifier("GPTNeoX"),
    "llama": _classifier("Llama", **_DECODER),
    "mistral": _classifier("Mistral", **_DECODER, sliding_window=4),
    "mobilebert": _classifier(
        "MobileBert", embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2
    ),
    "modernbert": _classifier("ModernBert", cls_token_id=1, sep_token_id=2, local_attention=4),
    "mpnet": _classifier("MPNet"),
    "opt": _classifier("OPT", ffn_dim=32, word_embed_proj_dim=16),
    "phi": _classifier("Phi"),
    "qwen2": _classifier("Qwen2", num_key_value_heads=1),
    "roberta": _classifier("Roberta", max_position_embeddings=40, pad_token_id=1),
    "roformer": _classifier("RoFormer", embedding_size=16),
    "squeezebert": _classifier(
        "SqueezeBert", embedding_size=16, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1,
        intermediate_groups=2, output_groups=2,
    ),
    "t5-encoder": _encoder(
        "T5EncoderModel", "T5Config", 16, vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2
    ),
    "xlnet": _xlnet,
    "xlm-roberta": _classifier("XLMRoberta", max_position_embeddings=40, pad_token_id=1),
    "vit": _of_pictures("ViT", **_PATCHES),
    "deit": _of_pictures("DeiT", **_PATCHES),
    "beit": _of_pictures("Beit", **_PATCHES),
    "swin": _of_pictures("Swin", patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
    "convnext": _of_pictures("ConvNext", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "resnet": _of_pictures("ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "mobilenet-v2": _of_pictures("MobileNetV2", depth_multiplier=0.25),
    "poolformer": _of_pictures(
        "PoolFormer", hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], drop_path_rate=0.1
    ),
    "regnet": _of_pictures("RegNet", embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], groups_width=8),
    "segformer": _of_pictures(
        "Segformer", hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=8,
    ),
}  # fmt: skip
# What is refused, with words of the error.
REFUSED: dict[str, tuple[Callable[[], Built], str]] = {
    "bart": (
        _classifier(
            "Bart", d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        ),
        "unique_consecutive",
    ),
    "fnet": (_classifier("FNet"), "complex64"),
    "t5": (
        _classifier("T5", decoder_start_token_id=0, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2),
        "unique_consecutive",
    ),
}  # fmt: skip
