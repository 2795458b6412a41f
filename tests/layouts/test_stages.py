"""A model that cannot be cut into stages is refused in words; one that can loses nothing."""

import pytest
import torch

from hf_tformer.fast.caches import CACHE
from hf_tformer.scale.pipeline import Stage
from hf_tformer.scale.sharding import keep_own_stage
from support.families import DECODER, ENCODER, SEQ2SEQ, random_rows

from .processes import new_layouts, run_in_processes
from .writing import CASES, write, write_in_stages


@pytest.mark.parametrize(
    ("family", "fields", "count", "sentence"),
    [
        (SEQ2SEQ, {}, 2, "two stacks, .* which no stage passes on: divide a decoder or an encoder"),
        (ENCODER, {"score_bias": "relative"}, 2, "score_bias is 'relative', whose table"),
        (DECODER, {}, 3, "stage 0 of 3 does not exist for 2 layers"),
    ],
)
def test_what_has_no_stages_is_refused(family, fields, count, sentence):
    with pytest.raises(ValueError, match=sentence):
        Stage(family.build(**fields), 0, count)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        (DECODER, {"scale_embedding": 3.7, "position_embedding_type": "learned"}),
        (DECODER, {"embedding_norm": True, "score_bias": "alibi"}),
        (DECODER, {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
        (ENCODER, {"embedding_norm": True, "type_vocab_size": 2}),
    ],
)
def test_one_stage_after_the_other_gives_the_logits_of_the_model(family, fields):
    ids = torch.tensor(random_rows([7, 7]))
    expected = family.build(**fields)(input_ids=ids).logits
    states = None
    for index in range(2):
        stage = Stage(family.build(**fields), index, 2)
        states = stage(states, input_ids=ids)
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@new_layouts
@pytest.mark.xfail(
    CACHE == "cache",
    reason="the stages of transformers 5.24 hand a cache on only to a parameter named cache",
)
def test_the_stages_of_transformers_write_what_one_process_writes(tmp_path):
    expected = {}
    for name, fields in CASES.items():
        model = DECODER.build(**fields)
        model.save_pretrained(tmp_path / name)
        expected[name] = write(model)
    run_in_processes(2, write_in_stages, tmp_path, expected)


def test_a_bias_that_reads_the_first_cache_has_no_stages():
    with pytest.raises(ValueError, match=r"score_bias is 'alibi', .* omit pp_size"):
        keep_own_stage(DECODER.build(score_bias="alibi").base_model)
