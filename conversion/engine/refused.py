"""Models of transformers that ours cannot express, with the reason and an alternative.

A model_type that is neither here nor a format is merely unknown.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why some models do not convert, and formats that serve the same purpose."""

    why: str
    instead: tuple[str, ...]
    model_types: tuple[str, ...]


ENCODERS = ("bert", "roberta", "modernbert")
DECODERS = ("llama", "qwen3", "mistral")
SEQ2SEQ = ("bart", "mbart", "m2m_100")
EXPERTS = "its experts are chosen, built or placed in a way that ours are not"
MIXTURES = ("mixtral", "qwen3_moe", "glm4_moe")
NO_TABLE = "nobody has written the table of its tensors yet"


def names(words: str) -> tuple[str, ...]:
    return tuple(words.split())


REFUSALS = (
    Refusal(
        EXPERTS,
        MIXTURES,
        names("""
            afmoe cohere2_moe dbrx exaone_moe flex_olmo granitemoe_swa hunyuan_v1_moe
            jetmoe llama4 llama4_text longcat_flash phimoe
        """),
    ),
    Refusal(
        "its attention has gates, and the depth of a layer weighs its residuals",
        MIXTURES,
        names("beam"),
    ),
    Refusal(
        "its router adds the correction before the sigmoid, and ours behind it",
        MIXTURES,
        names("kolibri1"),
    ),
    Refusal(
        "its first layer has no norm before attention, and its head has a dense layer",
        (*DECODERS, "modernbert"),
        names("modernbert-decoder"),
    ),
    Refusal(
        "its last layer alone has a bias behind attention",
        ("gpt_neox", *DECODERS),
        names("gpt_neox_japanese"),
    ),
    Refusal(
        "it scales its embeddings by the share of masked tokens (token_dropout)",
        ENCODERS,
        names("esm"),
    ),
    Refusal(
        NO_TABLE,
        DECODERS,
        names("""
            bert-generation roformer
        """),
    ),
    Refusal(NO_TABLE, ENCODERS, names("esmc flaubert ultrabert xlm")),
    Refusal(NO_TABLE, SEQ2SEQ, names("fsmt")),
    Refusal(
        "it is Llama by another name: write model_type llama into its config.json, and for "
        "InternLM3 attention_bias for qkv_bias and mlp_bias for bias",
        (),
        names("internlm3 iquestcoder"),
    ),
    Refusal("its folders are those of GPT-2, and say gpt2", (), names("gpt-sw3")),
    Refusal(
        "its queries grow with their position (llama_4_scaling_beta)", DECODERS, names("ministral3")
    ),
    Refusal(
        "its attention hides keys by a mask of its own, or scales itself by a gate",
        DECODERS,
        names("doge laguna"),
    ),
    Refusal("its layers are passed through several times", DECODERS, names("hrm_text")),
    Refusal("it joins bytes to patches before it attends to them", DECODERS, names("blt")),
    Refusal("its texts have segments and relations of their own", DECODERS, names("cpmant")),
    Refusal(
        "its embeddings know more of a token than its id and position: its shape, sound or table, "
        "or entities",
        ENCODERS,
        names("layoutlm luke roc_bert tapas"),
    ),
    Refusal("it has an adapter for each language in each layer", ENCODERS, names("xmod")),
    Refusal(
        "an index chooses the keys that it attends to",
        DECODERS,
        names("deepseek_v4 minimax_m3_vl_text"),
    ),
    Refusal(EXPERTS, SEQ2SEQ, names("nllb-moe switch_transformers")),
    Refusal(
        "its experts have biases, and its scores have sinks beside the keys",
        MIXTURES,
        names("flint gpt_oss mimo_v2_flash"),
    ),
    Refusal("its scores have sinks beside the keys", DECODERS, names("granite_swa")),
    Refusal(
        "its keys and values are compressed (latent attention), and ours are not",
        DECODERS,
        names("""
            axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 dots3_note dots3_note_text glm4_moe_lite
            glm_moe_dsa hy_v4 minicpm3 youtu
        """),
    ),
    Refusal(
        "its layers carry a state or convolve, and ours attend",
        DECODERS,
        names("""
            bailing_hybrid bamba falcon_h1 falcon_mamba inkling2_text inkling_text jamba kimi_linear
            lfm2 lfm2_moe lfm3 mamba mamba2 minimax nemotron_h olmo_hybrid qwen3_5 qwen3_5_moe
            qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp qwen4_exp_text recurrent_gemma rwkv
            xlstm zamba zamba2 zaya
        """),
    ),
    Refusal(
        "its norms of queries and keys follow the rotation, and ours come before it",
        DECODERS,
        names("hunyuan_v1_dense"),
    ),
    Refusal("its activation (xIELU) has trained parameters", DECODERS, names("apertus")),
    Refusal(
        "it adds one to the weights of its LayerNorm (LayerNorm1P), which rounds them in a file",
        DECODERS,
        names("nemotron"),
    ),
    Refusal(
        "its layers read embeddings of their own, or keys of other layers",
        DECODERS,
        names("""
            gemma3n gemma3n_text gemma4 gemma4_assistant gemma4_text gemma4_unified
            gemma4_unified_assistant gemma4_unified_text
        """),
    ),
    Refusal("it has norms inside its attention and its MLP", DECODERS, names("bitnet")),
    Refusal("it subtracts one attention from another", DECODERS, names("diffllama")),
    Refusal(
        "its scores compare contents with positions (disentangled attention)",
        ENCODERS,
        names("deberta deberta-v2"),
    ),
    Refusal(
        "its layers share their weights, and its embeddings are narrower than they",
        ENCODERS,
        names("albert"),
    ),
    Refusal("its embeddings are narrower than its layers", ENCODERS, names("mobilebert rembert")),
    Refusal(
        "its attention mixes windows with tokens or blocks that all tokens attend to",
        (*ENCODERS, *SEQ2SEQ),
        names("big_bird bigbird_pegasus led longformer longt5 pegasus_x"),
    ),
    Refusal(
        "its layers do not attend as ours do: they transform, convolve, hash or shorten a sequence",
        ENCODERS,
        names("canine convbert fnet funnel mra nystromformer reformer squeezebert xlnet yoso"),
    ),
    Refusal("it computes with integers", ENCODERS, names("ibert")),
    Refusal(
        "its decoder normalises the embeddings before it adds positions to them",
        ("blenderbot",),
        names("blenderbot-small"),
    ),
    Refusal("its decoder predicts several tokens at once", SEQ2SEQ, names("prophetnet")),
    Refusal(
        "its stacks have widths of their own, and its cross-attention bounds its scores",
        SEQ2SEQ,
        names("t5gemma"),
    ),
    Refusal(
        "its decoder attends to the source and to itself at once (merged attention)",
        SEQ2SEQ,
        names("t5gemma2"),
    ),
    Refusal(
        "it joins two models of other formats",
        SEQ2SEQ,
        names("encoder-decoder rag speech-encoder-decoder vision-encoder-decoder"),
    ),
    Refusal(
        "it reads images beside texts: its text model is gemma3_text",
        ("gemma3_text",),
        names("gemma3"),
    ),
    Refusal(
        "it reads images or sound, and ours read text: there is no way round",
        (),
        names("""
            aria_text audioflamingo3 clip cohere_compass_text emu3 fuyu git glmasr got_ocr2
            granite_speech granite_speech_plus hubert idefics idefics2 idefics3 internvl kosmos-2
            llava llava_next llava_onevision mistral3 mllama modernvbert moshi
            moss_transcribe_diarize musicflamingo musicgen musicgen_melody nemo_speechlm neomme
            paligemma perceiver phi4_multimodal qwen2_5_vl qwen2_audio qwen2_vl qwen3_asr qwen3_vl
            seamless_m4t seamless_m4t_v2 siglip smolvlm speech_to_text trocr ultravbert
            vibevoice_asr vit voxtral voxtral_realtime wav2vec2 whisper
        """),
    ),
)


def sentence(refusal: Refusal) -> str:
    if not refusal.instead:
        return refusal.why
    return f"{refusal.why}: choose a folder of {', '.join(refusal.instead)}"


# model_type → why not
REFUSED = {name: sentence(refusal) for refusal in REFUSALS for name in refusal.model_types}
