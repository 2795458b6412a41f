"""Models of plain PyTorch programs, of odd sizes and with random weights, saved as there."""

import json
from argparse import Namespace
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from torch import nn

from conversion.references.attention_is_all_you_need import Transformer
from conversion.references.llms_from_scratch import GPT, Llama
from conversion.references.llms_from_scratch_bonus import Gemma3, Qwen3
from conversion.references.meta_llama import MetaLlama
from conversion.references.nanogpt import NanoGPT
from conversion.references.parts import sinusoids
from conversion.references.torch_transformer import TorchTransformer
from conversion.references.tutorial_gpt import TutorialGPT
from conversion.references.tutorial_seq2seq import TutorialSeq2Seq
from support.converting import CLASSES


@dataclass
class Case:
    """How to build a model and how its program saves it; `settings` are what the file keeps
    back."""

    form: str
    reference: type[nn.Module]
    config: dict[str, object]
    save: object  # model, config, folder → what to import
    settings: dict[str, object] = field(default_factory=dict)

    def build(self):
        model = self.reference(SimpleNamespace(**self.config)).eval()
        generator = torch.Generator().manual_seed(0)
        offsets = {f"{n}.scale": m.offset for n, m in model.named_modules() if hasattr(m, "offset")}
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                values = torch.randn(tensor.shape, generator=generator)
                is_gain = tensor.ndim == 1 and not name.endswith(("bias", "shift"))
                gain = 1 - offsets.get(name, 0) + 0.3 * values
                tensor.copy_(gain if is_gain else 0.25 * values)
            for table in model.buffers():
                table.copy_(sinusoids(*table.shape[1:]))
        return model

    def save_to(self, folder):
        """The model, and the path of what its program would have saved."""
        folder.mkdir(exist_ok=True)
        model = self.build()
        return model, self.save(model, self.config, folder)


def save_state(model, config, folder):
    torch.save(model.state_dict(), folder / "model.pth")
    return folder / "model.pth"


def save_with_mask(name, shape):
    def save(model, config, folder):
        mask = torch.ones(shape, dtype=torch.bool).tril()
        torch.save({**model.state_dict(), name: mask}, folder / "model.pth")
        return folder / "model.pth"

    return save


def save_book(model, config, folder):
    """With its optimiser, as the book's second way is."""
    mask = {"trf_blocks.0.att.mask": torch.ones(17, 17).triu(1)}
    state = {**model.state_dict(), **mask}
    optimizer = torch.optim.AdamW(model.parameters()).state_dict()
    torch.save({"model_state_dict": state, "optimizer_state_dict": optimizer}, folder / "both.pth")
    return folder / "both.pth"


def save_nanogpt(model, config, folder, prefix=""):
    names = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")
    checkpoint = {
        "model": {prefix + name: tensor for name, tensor in model.state_dict().items()},
        "optimizer": torch.optim.AdamW(model.parameters()).state_dict(),
        "model_args": {**{name: config[name] for name in names}, "dropout": 0.1},
        "iter_num": 7,
        "best_val_loss": torch.tensor(3.1),
        "config": {"n_head": 99, "compile": bool(prefix), "out_dir": "out"},
    }
    torch.save(checkpoint, folder / "ckpt.pt")
    return folder / "ckpt.pt"


def save_compiled_nanogpt(model, config, folder):
    return save_nanogpt(model, config, folder, prefix="_orig_mod.")


def save_chkpt(model, config, folder):
    names = ("n_head", "src_pad_idx", "trg_pad_idx", "n_layers", "d_model", "d_k", "d_v")
    flags = ("proj_share_weight", "embs_share_weight", "scale_emb_or_prj")
    said = {name: config[name] for name in (*names, *flags)}
    settings = Namespace(**said, dropout=0.1, output_dir="out", n_warmup_steps=4000, cuda=False)
    checkpoint = {"epoch": 3, "settings": settings, "model": model.state_dict()}
    torch.save(checkpoint, folder / "model.chkpt")
    return folder / "model.chkpt"


def save_ranks(ranks, vocabulary=0, **params):
    """Meta's folder; `vocabulary` is the dimension along which the table is split."""

    def save(model, config, folder):
        names = ("dim", "n_layers", "n_heads", "n_kv_heads", "norm_eps")
        said = {**{name: config[name] for name in names}, "vocab_size": -1, "multiple_of": 4}
        (folder / "params.json").write_text(json.dumps({**said, **params}))
        for rank in range(ranks):
            part = {
                name: part_of(name, tensor, rank, ranks, vocabulary)
                for name, tensor in model.state_dict().items()
            }
            part["rope.freqs"] = torch.ones(5)
            torch.save(part, folder / f"consolidated.{rank:02}.pth")
        return folder

    return save


def part_of(name, tensor, rank, ranks, vocabulary):
    last = name.split(".")[-2]
    by_rows = last in ("wq", "wk", "wv", "w1", "w3", "output")
    by_columns = last in ("wo", "w2")
    if not (by_rows or by_columns or last == "tok_embeddings"):
        return tensor
    dim = vocabulary if last == "tok_embeddings" else int(by_columns)
    return tensor.chunk(ranks, dim)[rank].clone()


NANOGPT = {"vocab_size": 101, "n_embd": 30, "n_inner": 120, "n_layer": 2, "n_head": 3}
NANOGPT |= {"block_size": 17, "activation": "gelu"}
META = {"vocab_size": 102, "dim": 36, "hidden_dim": 44, "n_layers": 2, "n_heads": 6}
META |= {"n_kv_heads": 2, "norm_eps": 1e-4, "rope_theta": 500.0, "tied": False}
META |= {"use_scaled_rope": False, "rope_scaling_factor": None}
SCALED = {"use_scaled_rope": True, "rope_scaling_factor": 8.0}
BOOK = {"vocab_size": 101, "emb_dim": 36, "hidden_dim": 44, "n_layers": 2, "n_heads": 6}
BOOK |= {"tied": False, "context_length": 17, "kv_dim": 18}
BONUS = {"vocab_size": 101, "emb_dim": 30, "hidden_dim": 44, "n_heads": 6, "n_kv_groups": 3}
BONUS |= {"head_dim": 8, "rope_base": 50.0, "tied": False}
GEMMA3 = {"sliding_window": 5, "rope_local_base": 20.0, "query_pre_attn_scalar": 21}
GEMMA3 |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
FREQ = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FREQ |= {"original_context_length": 16}
TUTORIAL = {"src_vocab_size": 97, "tgt_vocab_size": 101, "d_model": 30, "d_ff": 44}
TUTORIAL |= {"num_heads": 3, "encoder_layers": 1, "decoder_layers": 2, "max_len": 19, "pad_idx": 0}
TUTORIAL_GPT = {"vocab_size": 101, "d_model": 36, "d_ff": 44, "n_layers": 2, "n_heads": 6}
AIAYN = {"src_vocab_size": 101, "trg_vocab_size": 101, "d_model": 30, "d_inner": 44}
AIAYN |= {"n_layers": 2, "n_head": 3, "d_k": 7, "d_v": 5, "n_position": 19}
AIAYN |= {"src_pad_idx": 1, "trg_pad_idx": 1}
TORCH = {"src_vocab_size": 97, "tgt_vocab_size": 101, "d_model": 30, "dim_feedforward": 44}
TORCH |= {"nhead": 3, "num_encoder_layers": 1, "num_decoder_layers": 2, "activation": "relu"}
TORCH |= {"layer_norm_eps": 1e-5, "norm_first": False, "final_norm": True, "bias": True}
TORCH |= {"generator_bias": True, "shares_tables": False, "ties_generator": False}
TORCH |= {"scale_embedding": True, "pad_token_id": 1}


def nanogpt(bias, save=save_nanogpt):
    return Case("nanogpt", NanoGPT, {**NANOGPT, "bias": bias}, save)


def meta(save, **config):
    return Case("meta-llama", MetaLlama, {**META, **config}, save)


def book_llama(rope_freq):
    settings = {"n_heads": 6, "rope_base": 50.0, "rope_freq": rope_freq}
    return Case("llms-from-scratch-llama", Llama, {**BOOK, **settings}, save_state, settings)


def book_gpt(qkv_bias, save, **config):
    config = {**BOOK, "qkv_bias": qkv_bias, **config}
    return Case("llms-from-scratch-gpt", GPT, config, save, {"n_heads": 6})


def book_qwen3(**config):
    config = {**BONUS, "n_layers": 2, **config}
    return Case("llms-from-scratch-qwen3", Qwen3, config, save_state, {"rope_base": 50.0})


def book_gemma3(unsaid=(), **config):
    config = {**BONUS, **GEMMA3, **config}
    settings = {n: config[n] for n in (*GEMMA3, "rope_base") if n not in unsaid}
    return Case("llms-from-scratch-gemma3", Gemma3, config, save_state, settings)


def aiayn(proj, embs, scale):
    flags = {"proj_share_weight": proj, "embs_share_weight": embs, "scale_emb_or_prj": scale}
    config = {**AIAYN, **flags}
    config["scales_logits"] = proj and scale == "prj"
    config["scales_embeddings"] = proj and scale == "emb"
    if not embs:
        config["src_vocab_size"] = 97
    return Case("attention-is-all-you-need", Transformer, config, save_chkpt)


def torch_transformer(**config):
    config = {**TORCH, **config}
    if config["shares_tables"]:
        config["src_vocab_size"] = config["tgt_vocab_size"]
    names = ("nhead", "pad_token_id", "norm_first", "activation", "scale_embedding")
    settings = {name: config[name] for name in names}
    return Case("torch-transformer", TorchTransformer, config, save_state, settings)


CASES = {
    "nanogpt": nanogpt(True),
    "nanogpt without biases, compiled": nanogpt(False, save_compiled_nanogpt),
    "meta": meta(save_ranks(1, rope_theta=500.0)),
    "meta two ranks": meta(save_ranks(2, rope_theta=500.0)),
    "meta two ranks, the width of the table split": meta(save_ranks(2, 1, rope_theta=500.0)),
    "meta scaled": meta(save_ranks(1, rope_theta=500.0, **SCALED), **SCALED),
    "meta tied": meta(save_ranks(2, rope_theta=500.0), tied=True),
    "book gpt": book_gpt(True, save_book),
    "book gpt without biases": book_gpt(False, save_state, tied=True),
    "book llama": book_llama(None),
    "book llama scaled": book_llama(FREQ),
    "book qwen3": book_qwen3(),
    "book qwen3 tied": book_qwen3(tied=True),
    "book gemma3": book_gemma3(),
    "book gemma3 tied, all slide": book_gemma3(tied=True, layer_types=["sliding_attention"] * 3),
    "book gemma3 all full": book_gemma3(layer_types=["full_attention"] * 2),
    "book gemma3 as released": book_gemma3(
        unsaid=("query_pre_attn_scalar", "layer_types"),
        query_pre_attn_scalar=BONUS["head_dim"],
        layer_types=[*["sliding_attention"] * 5, "full_attention", "sliding_attention"],
    ),
    "tutorial seq2seq": Case(
        "tutorial-seq2seq", TutorialSeq2Seq, TUTORIAL, save_state, {"num_heads": 3}
    ),
    "tutorial gpt": Case(
        "tutorial-gpt",
        TutorialGPT,
        {**TUTORIAL_GPT, "kv_dim": 18},
        save_with_mask("causal_mask", (1, 1, 17, 17)),
        {"n_heads": 6},
    ),
    **{
        f"aiayn {'proj' if proj else '-'} {'embs' if embs else '-'} {scale}": aiayn(
            proj, embs, scale
        )
        for proj in (True, False)
        for embs in (True, False)
        for scale in ("prj", "emb", "none")
    },
    "torch post-norm": torch_transformer(),
    "torch pre-norm, gelu": torch_transformer(norm_first=True, activation="gelu"),
    "torch without biases and last norms": torch_transformer(
        bias=False, final_norm=False, generator_bias=False
    ),
    "torch tied": torch_transformer(shares_tables=True, ties_generator=True),
    "torch unscaled": torch_transformer(scale_embedding=False, ties_generator=True),
}


SEQ2SEQ = ("tutorial-seq2seq", "attention-is-all-you-need", "torch-transformer")


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def ours_of(folder):
    return CLASSES[config_of(folder)["model_type"]].from_pretrained(folder).eval()


@torch.no_grad()
def assert_same_logits(ours, theirs, form):
    """A batch padded on the right, which encoder-decoders see by the id and the others not at
    all."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([13, 8, 3])
    mask = torch.arange(13) < lengths[:, None]
    pad = ours.config.pad_token_id or 0
    ids = torch.randint(3, 97, (3, 13), generator=generator).masked_fill(~mask, pad)
    if form not in SEQ2SEQ:
        actual = ours(input_ids=ids, attention_mask=mask.long()).logits
        expected = theirs(ids)  # causal: what follows a token does not matter
    else:
        target_mask = mask.flip(0)
        target = ids.flip(0).masked_fill(~target_mask, pad)
        batch = {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": target}
        actual = ours(**batch, decoder_attention_mask=target_mask.long()).logits
        expected, mask = theirs(ids, target), target_mask
    torch.testing.assert_close(actual[mask], expected[mask], rtol=1e-4, atol=1e-5)
