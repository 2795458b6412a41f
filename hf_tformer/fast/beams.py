"""Beam search as transformers does it, without the work that changes nothing.

A prompt is read once for all of its beams, no past is moved when beams change places, the many
scores of a step are looked at once, and a text whose beams cannot improve is not continued.
"""

import torch

from . import guards
from .steps import pays_to_drop, prefill

NEVER = -1e9  # the score of what must not be chosen, as in transformers
BLOCK = 64  # scores that are compared by their largest


def search_beams(model, input_ids, processors, criteria, generation_config, **model_kwargs):
    """What transformers' beam search returns, [texts · num_return_sequences, length]."""
    beams = generation_config.num_beams
    may_leave = guards.may_drop_sequences(model, processors, criteria)
    model_kwargs = {name: one_of(value, beams) for name, value in model_kwargs.items()}
    step, logits = prefill(model, input_ids[::beams], generation_config, model_kwargs, beams)
    logits = logits.repeat_interleave(beams, 0)
    found = Beams(input_ids, generation_config)
    while True:
        origins = found.choose(logits.float(), processors, criteria)
        if found.is_over():
            return found.best(generation_config.num_return_sequences)
        staying = found.leave() if may_leave else None
        if staying is None:
            step.run.follow(origins)
        else:
            step.keep(origins.view(-1, beams)[staying].flatten())
        logits = step(found.texts[..., -1].flatten())


def one_of(value, beams):
    """What is the same for all beams of a text, once."""
    if isinstance(value, torch.Tensor):
        return value[::beams]
    if hasattr(value, "last_hidden_state"):
        return type(value)(last_hidden_state=value.last_hidden_state[::beams])
    return value


class Beams:
    """Texts that go on, `beams` of each place in the batch, and the best of those that have ended.

    `texts` and `scores` are of the places in `places`, all else is of the whole batch.
    """

    def __init__(self, input_ids, generation_config):
        self.beams, self.max_length = generation_config.num_beams, generation_config.max_length
        self.early_stopping = generation_config.early_stopping
        self.length_penalty = generation_config.length_penalty
        self.texts = input_ids.long().unflatten(0, (-1, self.beams))  # [places, beams, length]
        self.prompt, batch = self.texts.shape[-1], len(self.texts)
        self.places = torch.arange(batch)
        # All beams begin alike: what continues any but the first would be found several times.
        self.scores = torch.full((batch, self.beams), NEVER, dtype=torch.float)
        self.scores[:, 0] = 0.0

        ends, padding = generation_config._eos_token_tensor, generation_config._pad_token_tensor
        self.candidates = max(2, 1 + (0 if ends is None else len(ends))) * self.beams
        filler = -1 if ends is None else int(padding or ends[0])  # in transformers' words
        room = self.max_length - self.prompt
        self.ended = torch.nn.functional.pad(self.texts, (0, room), value=filler)
        self.ended_scores = torch.full((batch, self.beams), NEVER, dtype=torch.float)
        self.lengths = torch.zeros(batch, self.beams, dtype=torch.long)  # 0: none has ended yet
        self.can_improve = torch.ones(batch, dtype=torch.bool)
        self.all_stop = False

    def choose(self, logits, processors, criteria):
        """Lets every beam continue by a token; returns which beam each of them was."""
        scores, origins, tokens = self.continuations(logits, processors)
        texts = torch.cat((pick(self.texts, origins), tokens.unsqueeze(-1)), dim=-1)
        stops = criteria(texts.flatten(0, 1), None).view(scores.shape)
        going = scores + stops * NEVER
        order = going.topk(self.beams)[1]
        self.texts, self.scores = pick(texts, order), going.gather(1, order)
        # The others are only there to go on in place of those that end.
        self.collect(*(x[:, : self.beams] for x in (texts, scores, stops)))
        self.all_stop = bool(stops.all())
        self.update_can_improve()
        first_beams = torch.arange(len(scores))[:, None] * self.beams
        return (origins.gather(1, order) + first_beams).flatten()

    def continuations(self, logits, processors):
        """The best of each place: their scores, the beams they continue, and by which token."""
        if processors:
            logits = processors(self.texts.flatten(0, 1), logits.log_softmax(-1))
        scores, tokens = largest(logits, min(self.candidates, logits.shape[-1]))
        if not processors:
            scores = scores - logits.logsumexp(-1, keepdim=True)
        count = scores.shape[-1]
        scores = (scores.view(*self.scores.shape, count) + self.scores[..., None]).flatten(1)
        scores, best = scores.topk(self.candidates)
        return scores, best // count, tokens.view(len(scores), -1).gather(1, best)

    def collect(self, texts, scores, stops):
        """Of what ends now and what had ended before, keeps the best."""
        stops = stops & self.is_open()[self.places, None]
        if not stops.any():
            return
        length, places = texts.shape[-1], self.places
        generated = length - self.prompt
        scores = (scores / generated**self.length_penalty).masked_fill(~stops, NEVER)
        scores = torch.cat((self.ended_scores[places], scores), dim=1)
        lengths = torch.cat((self.lengths[places], stops * generated), dim=1)
        longer = self.ended[:1, :1, length:].expand(*stops.shape, -1)  # filler
        texts = torch.cat((self.ended[places], torch.cat((texts, longer), dim=-1)), dim=1)
        scores, best = scores.topk(self.beams)
        self.ended[places], self.ended_scores[places] = pick(texts, best), scores
        self.lengths[places] = lengths.gather(1, best)

    def update_can_improve(self):
        """Which places could still find something better than the worst that they have."""
        reaches_on = self.early_stopping == "never" and self.length_penalty > 0
        length = self.max_length if reaches_on else self.texts.shape[-1]
        hoped = self.scores[:, 0] / (length - self.prompt) ** self.length_penalty
        worst = self.ended_scores.amin(1).where(self.is_full(), NEVER)
        self.can_improve[self.places] &= hoped > worst[self.places]

    def is_full(self):
        """Where as many texts have ended as are wanted."""
        return (self.lengths > 0).all(1)

    def is_open(self):
        """Which places of the batch may still add to what has ended."""
        if self.early_stopping is True:
            return self.can_improve & ~self.is_full()
        return self.can_improve

    def is_over(self):
        return self.all_stop or not self.is_open().any()

    def leave(self):
        """Lets closed places go, where it pays: returns which of those that were there stay."""
        staying = self.is_open()[self.places].nonzero().flatten()
        if not pays_to_drop(len(staying), len(self.places)):
            return None
        self.places, self.texts, self.scores = (
            x[staying] for x in (self.places, self.texts, self.scores)
        )
        return staying

    def best(self, count):
        longest = int(self.lengths[:, :count].max())
        return self.ended[:, :count, : self.prompt + longest].flatten(0, 1)


def pick(texts, order):
    """[places, texts, length] in another order, [places, new texts]."""
    return texts.gather(1, order[..., None].expand(-1, -1, texts.shape[-1]))


def largest(scores, count):
    """scores.topk(count) of long rows: most scores are only compared with their neighbours."""
    rows, size = scores.shape
    blocks = size // BLOCK
    if blocks <= count:
        return scores.topk(count)
    whole = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    best = whole.amax(-1).topk(count)[1][..., None]
    near = whole.gather(1, best.expand(-1, -1, BLOCK)).flatten(1)
    tokens = (best * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(blocks * BLOCK, size).expand(rows, -1)
    scores, found = torch.cat((near, scores[:, blocks * BLOCK :]), dim=1).topk(count)
    return scores, torch.cat((tokens, rest), dim=1).gather(1, found)
