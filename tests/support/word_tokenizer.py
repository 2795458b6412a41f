"""A tokenizer of words with the special tokens of an encoder."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
SPECIAL |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}
TEXT = "w3 [MASK] w5"


def tokenizer_of_words():
    """A tokenizer of 101 words between the tokens that begin and end a text."""
    names = [*SPECIAL.values(), *(f"w{i}" for i in range(96))]
    words = Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL)
