"""The GPT of chapters 0 to 19 in one file: written, trained for a minute, saved, opened by anyone.

    python examples/own_gpt.py --output my-gpt

Nothing of this package is in the model. Its parts only have the names that ours have, so that its
weights fit into a `TformerDecoderForCausalLM`, which every tool opens. Comments name the chapters.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from data import add_document_flags, iterate_documents, train_tokenizer
from folders import output_folder
from program import ProgramError, Tokenizer, at_least, run
from torch import Tensor, nn
from torch.nn import functional as F

from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM

LENGTH = 96  # tokens of an example


@dataclass
class Sizes:
    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 352
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2


def rotate(x: Tensor, places: Tensor) -> Tensor:  # chapter 13; [batch, heads, tokens, size]
    first, second = x.chunk(2, dim=-1)
    pairs = first.shape[-1]
    angle = places[:, None] * 10000 ** (-torch.arange(pairs) / pairs)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, groups = sizes.hidden_size, sizes.num_key_value_heads
        self.size = width // sizes.num_attention_heads  # chapter 8
        self.shared = sizes.num_attention_heads // groups  # chapter 17
        self.q_proj = nn.Linear(width, width, bias=False)  # chapter 5
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, cache):
        projected = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (each.unflatten(-1, (-1, self.size)).transpose(1, 2) for each in projected)
        past = cache[0].shape[2] if cache else 0
        places = torch.arange(past, past + x.shape[1])
        q, k = rotate(q, places), rotate(k, places)
        if cache:  # chapter 19
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        keys, values = (each.repeat_interleave(self.shared, dim=1) for each in (k, v))
        scores = q @ keys.mT / self.size**0.5  # chapter 3
        later = torch.arange(keys.shape[2]) > places[:, None]  # chapter 6
        weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)  # chapter 1
        return self.o_proj((weights @ values).transpose(1, 2).flatten(2)), (k, v)


class MLP(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inner = sizes.hidden_size, sizes.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):  # chapter 17
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(sizes), MLP(sizes)
        self.self_attn_norm = nn.RMSNorm(sizes.hidden_size, eps=1e-6)
        self.mlp_norm = nn.RMSNorm(sizes.hidden_size, eps=1e-6)

    def forward(self, x, cache):  # chapters 10 and 17
        attended, cache = self.self_attn(self.self_attn_norm(x), cache)
        x = x + attended
        return x + self.mlp(self.mlp_norm(x)), cache


class GPT(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)  # chapter 0
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = nn.RMSNorm(sizes.hidden_size, eps=1e-6)
        for weight in filter(lambda weight: weight.dim() == 2, self.parameters()):
            nn.init.normal_(weight, std=0.02)

    def forward(self, ids, caches=None):
        """Return the logits of each token, and a cache for each layer."""
        x, kept = self.embed_tokens(ids), []
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x, cache = layer(x, cache)
            kept.append(cache)
        return self.norm(x) @ self.embed_tokens.weight.T, kept


def train(gpt: GPT, tokens: Tensor, steps: int, rows: int = 8, length: int = LENGTH) -> None:
    optimizer = torch.optim.AdamW(gpt.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(1, steps + 1):  # chapter 15: warm-up, teacher forcing
        rise, fall = min(1, 20 * step / steps), 1 - step / (steps + 1)
        optimizer.param_groups[0]["lr"] = 3e-3 * rise * fall
        spans = torch.randint(len(tokens) - length, (rows, 1)) + torch.arange(length + 1)
        logits, _ = gpt(tokens[spans[:, :-1]])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[spans[:, 1:]].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step in (1, steps):
            print(f"step {step}: loss {loss:.2f}")


@torch.no_grad()
def generate(gpt: GPT, ids: Tensor, count: int) -> Tensor:  # chapter 16: the likeliest token
    logits, caches = gpt(ids)
    for _ in range(count):
        ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
        logits, caches = gpt(ids[:, -1:], caches)
    return ids


def save(gpt: GPT, sizes: Sizes, tokenizer: Tokenizer, folder: Path) -> None:
    ours = TformerDecoderForCausalLM(TformerDecoderConfig(**asdict(sizes)))
    ours.model.load_state_dict(gpt.state_dict())
    ours.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_document_flags(parser).set_defaults(vocab_size=1024)
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--steps", type=at_least(1), default=600, help="number of training steps")
    args = parser.parse_args()
    with output_folder(args.output):
        torch.manual_seed(0)
        documents = list(iterate_documents(args))
        tokenizer = train_tokenizer(documents, args.vocab_size, {})
        tokens = tokenizer(tokenizer.eos_token.join(documents), return_tensors="pt").input_ids[0]
        if len(tokens) <= LENGTH:
            raise ProgramError(f"the text has {len(tokens)} tokens: give more than {LENGTH}")
        sizes = Sizes(vocab_size=len(tokenizer))
        gpt = GPT(sizes)
        train(gpt, tokens, args.steps)
        save(gpt, sizes, tokenizer, args.output)
    prompt = tokenizer("The value of", return_tensors="pt").input_ids
    print(tokenizer.decode(generate(gpt, prompt, 30)[0]))


if __name__ == "__main__":
    run(main)
