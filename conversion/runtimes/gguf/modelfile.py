"""The Modelfile, from which Ollama makes a model of its own."""

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

SYSTEM, PROMPT, RESPONSE = ".System.", ".Prompt.", ".Response."


def modelfile(file: str, tokenizer: PreTrainedTokenizerBase, longest: int, ends: list[int]) -> str:
    lines = [f"FROM ./{file}", f"PARAMETER num_ctx {longest}"]
    stops = [tokenizer.convert_ids_to_tokens(end) for end in ends]
    lines += [f'PARAMETER stop "{stop}"' for stop in stops if stop and '"' not in stop]
    template = chat_template(tokenizer)
    if template is not None:
        lines.append(f'TEMPLATE """{template}"""')
    return "\n".join(lines) + "\n"


def chat_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The chat template in Ollama's language, learned from what it makes of some chats.

    None where there is none, or where turns are not written one like the other: then Ollama goes
    by the template that model.gguf holds.
    """
    system, prompt = ("system", SYSTEM), ("user", PROMPT)
    response = "assistant", RESPONSE
    try:
        asked = written(tokenizer, prompt)
        told = written(tokenizer, system, prompt)
        longer = written(tokenizer, prompt, response, prompt)
    except (ValueError, TemplateError):  # no template, or one that knows no system
        return None
    if not longer.startswith(asked + RESPONSE) or not longer.endswith(asked):
        return None
    after = longer[len(asked + RESPONSE) : len(longer) - len(asked)]
    before = told.removesuffix(asked)
    parts = before.split(SYSTEM), asked.split(PROMPT)
    if [len(part) for part in parts] != [2, 2] or not told.endswith(asked):
        return None
    made = (
        "{{ if .System }}" + before.replace(SYSTEM, "{{ .System }}") + "{{ end }}"
        "{{ if .Prompt }}" + asked.replace(PROMPT, "{{ .Prompt }}") + "{{ end }}"
        "{{ .Response }}" + after
    )
    literal = told + after
    return None if "{{" in literal or '"""' in literal else made


def written(tokenizer: PreTrainedTokenizerBase, *turns: tuple[str, str]) -> str:
    """A chat up to where the model answers, without the first token of all texts, which llama.cpp
    adds."""
    messages = [{"role": role, "content": content} for role, content in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text.removeprefix(tokenizer.bos_token or "")
