"""Beam search as transformers does it, without the work that changes nothing.

A prompt is read once for all of its beams, no past is moved when beams change places, the scores of
a step are compared in blocks, and an example whose beams cannot improve is not continued.
"""

from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from .generation_guards import may_drop_sequences
from .passes import NextBeamTokens
from .steps import pays_to_drop, prefill

NEVER = -1e9  # the score of what must not be chosen, as in transformers
STUCK = -1e6  # what is added to the score of a sequence that ends because no token may follow
BLOCK = 64  # scores that are first compared by their largest


def search_beams(
    model: PreTrainedModel,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **model_kwargs: Any,
) -> Tensor:
    """Return the sequences [examples · num_return_sequences, length] of transformers' search."""
    count = generation_config.num_beams
    may_drop = may_drop_sequences(model, processors, criteria)
    model_kwargs = {name: first_beams(value, count) for name, value in model_kwargs.items()}
    step, logits = prefill(model, input_ids[::count], generation_config, model_kwargs, count)
    context = cast(NextBeamTokens, step.context)
    logits = logits.repeat_interleave(count, 0)
    beams = Beams(input_ids, generation_config)
    while True:
        origins = beams.advance(logits.float(), processors, criteria)
        if beams.is_over():
            return beams.best(generation_config.num_return_sequences)
        kept = beams.drop_closed() if may_drop else None
        if kept is None:
            context.follow(origins)
        else:
            step.keep(origins.view(-1, count)[kept].flatten())
        logits = step(beams.sequences[..., -1].flatten())


def first_beams(value: Any, beams: int) -> Any:
    """Return an input that is the same for all beams of an example, once for each example."""
    if isinstance(value, Tensor):
        return value[::beams]
    if hasattr(value, "last_hidden_state"):
        return type(value)(last_hidden_state=value.last_hidden_state[::beams])
    return value


class Beams:
    """The running beams of each example, and the best of those that have finished.

    `sequences` and `scores` are of the examples in `examples`, all else is of the whole batch.
    """

    def __init__(self, input_ids: Tensor, generation_config: GenerationConfig):
        self.beams, self.max_length = generation_config.num_beams, generation_config.max_length
        self.early_stopping = generation_config.early_stopping
        self.length_penalty = generation_config.length_penalty
        self.sequences = input_ids.long().unflatten(0, (-1, self.beams))  # [examples, beams, …]
        self.prompt, batch = self.sequences.shape[-1], len(self.sequences)
        self.examples = torch.arange(batch)
        # All beams start alike: continuations of any but the first would be found several times.
        self.scores = torch.full((batch, self.beams), NEVER, dtype=torch.float)
        self.scores[:, 0] = 0.0

        ends, padding = generation_config._eos_token_tensor, generation_config._pad_token_tensor
        self.candidates = max(2, 1 + (0 if ends is None else len(ends))) * self.beams
        filler = -1 if ends is None else int(padding or ends[0])  # as transformers writes it
        room = self.max_length - self.prompt
        self.finished = torch.nn.functional.pad(self.sequences, (0, room), value=filler)
        self.finished_scores = torch.full((batch, self.beams), NEVER, dtype=torch.float)
        self.lengths = torch.zeros(batch, self.beams, dtype=torch.long)  # 0: none has finished yet
        self.can_improve = torch.ones(batch, dtype=torch.bool)
        self.all_stop = False

    def advance(
        self, logits: Tensor, processors: LogitsProcessorList, criteria: StoppingCriteriaList
    ) -> Tensor:
        """Append a token to every beam; return the index of the beam that each continues."""
        scores, origins, tokens = self.continuations(logits, processors)
        stuck = (scores[:, :1] == -torch.inf).expand_as(self.scores)
        if stuck.any():
            self.collect(self.sequences, self.scores + STUCK, stuck)
        sequences = torch.cat((pick(self.sequences, origins), tokens.unsqueeze(-1)), dim=-1)
        stops = criteria(sequences.flatten(0, 1), None).view(scores.shape)
        running = scores + stops * NEVER
        order = running.topk(self.beams)[1]
        self.sequences, self.scores = pick(sequences, order), running.gather(1, order)
        # The other candidates only take the places of those that stop.
        self.collect(*(x[:, : self.beams] for x in (sequences, scores, stops)))
        self.all_stop = bool(stops.all())
        self.update_can_improve()
        first_beams = torch.arange(len(scores))[:, None] * self.beams
        return (origins.gather(1, order) + first_beams).flatten()

    def continuations(
        self, logits: Tensor, processors: LogitsProcessorList
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best candidates: their scores, the beams that they continue, their tokens."""
        if processors:
            logits = processors(self.sequences.flatten(0, 1), logits.log_softmax(-1))
        scores, tokens = largest(logits, min(self.candidates, logits.shape[-1]))
        if not processors:
            scores = scores - logits.logsumexp(-1, keepdim=True)
        count = scores.shape[-1]
        scores = (scores.view(*self.scores.shape, count) + self.scores[..., None]).flatten(1)
        scores, best = scores.topk(self.candidates)
        return scores, best // count, tokens.view(len(scores), -1).gather(1, best)

    def collect(self, sequences: Tensor, scores: Tensor, stops: Tensor) -> None:
        """Keep the best of the beams that finish now and those that had finished before."""
        stops = stops & self.is_open()[self.examples, None]
        if not stops.any():
            return
        length, examples = sequences.shape[-1], self.examples
        generated = max(length - self.prompt, 1)
        scores = (scores / generated**self.length_penalty).masked_fill(~stops, NEVER)
        scores = torch.cat((self.finished_scores[examples], scores), dim=1)
        lengths = torch.cat((self.lengths[examples], stops * (length - self.prompt)), dim=1)
        longer = self.finished[:1, :1, length:].expand(*stops.shape, -1)  # filler
        sequences = torch.cat((sequences, longer), dim=-1)
        sequences = torch.cat((self.finished[examples], sequences), dim=1)
        scores, best = scores.topk(self.beams)
        self.finished[examples], self.finished_scores[examples] = pick(sequences, best), scores
        self.lengths[examples] = lengths.gather(1, best)

    def update_can_improve(self) -> None:
        """Find the examples whose best beam could still beat the worst finished one."""
        may_grow = self.early_stopping == "never" and self.length_penalty > 0
        length = self.max_length if may_grow else self.sequences.shape[-1]
        hoped = self.scores[:, 0] / (length - self.prompt) ** self.length_penalty
        worst = self.finished_scores.amin(1).where(self.is_full(), NEVER)
        self.can_improve[self.examples] &= hoped > worst[self.examples]

    def is_full(self) -> Tensor:
        """Return for which examples as many beams have finished as are wanted."""
        return (self.lengths > 0).all(1)

    def is_open(self) -> Tensor:
        """Return which examples of the batch may still get better finished beams."""
        if self.early_stopping is True:
            return self.can_improve & ~self.is_full()
        return self.can_improve

    def is_over(self) -> bool:
        return self.all_stop or not bool(self.is_open().any())

    def drop_closed(self) -> Tensor | None:
        """Drop closed examples where it pays; return the indices of those that are kept."""
        kept = self.is_open()[self.examples].nonzero().flatten()
        if not pays_to_drop(len(kept), len(self.examples)):
            return None
        self.examples, self.sequences, self.scores = (
            x[kept] for x in (self.examples, self.sequences, self.scores)
        )
        return kept

    def best(self, count: int) -> Tensor:
        """Return the best finished sequences of each example."""
        longest = int(self.lengths[:, :count].max())
        return self.finished[:, :count, : self.prompt + longest].flatten(0, 1)


def pick(sequences: Tensor, order: Tensor) -> Tensor:
    """Select sequences [examples, sequences, length] by an order [examples, new sequences]."""
    return sequences.gather(1, order[..., None].expand(-1, -1, sequences.shape[-1]))


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return scores.topk(count) of long rows; most scores are only compared within their block."""
    rows, size = scores.shape
    blocks = size // BLOCK
    if blocks <= count:
        values, tokens = scores.topk(count)
        return values, tokens
    whole = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    best = whole.amax(-1).topk(count)[1][..., None]
    near = whole.gather(1, best.expand(-1, -1, BLOCK)).flatten(1)
    tokens = (best * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(blocks * BLOCK, size).expand(rows, -1)
    scores, found = torch.cat((near, scores[:, blocks * BLOCK :]), dim=1).topk(count)
    return scores, torch.cat((tokens, rest), dim=1).gather(1, found)
