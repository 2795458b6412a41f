"""The Modelfile, from which Ollama makes a model."""

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
    """Return the chat template in Ollama's language, derived from a few rendered chats.

    None if there is none, or if messages are not rendered uniformly: then Ollama uses the template
    in model.gguf.
    """
    system, prompt = ("system", SYSTEM), ("user", PROMPT)
    response = "assistant", RESPONSE
    try:
        asked = rendered(tokenizer, prompt)
        instructed = rendered(tokenizer, system, prompt)
        longer = rendered(tokenizer, prompt, response, prompt)
    except (ValueError, TemplateError):  # no template, or one without system
        return None
    if not longer.startswith(asked + RESPONSE) or not longer.endswith(asked):
        return None
    after = longer[len(asked + RESPONSE) : len(longer) - len(asked)]
    before = instructed.removesuffix(asked)
    parts = before.split(SYSTEM), asked.split(PROMPT)
    if [len(part) for part in parts] != [2, 2] or not instructed.endswith(asked):
        return None
    made = (
        "{{ if .System }}" + before.replace(SYSTEM, "{{ .System }}") + "{{ end }}"
        "{{ if .Prompt }}" + asked.replace(PROMPT, "{{ .Prompt }}") + "{{ end }}"
        "{{ .Response }}" + after
    )
    literal = instructed + after
    return None if "{{" in literal or '"""' in literal else made


def rendered(tokenizer: PreTrainedTokenizerBase, *messages: tuple[str, str]) -> str:
    """Render a chat up to the model's answer, without the bos_token, which llama.cpp adds."""
    chat = [{"role": role, "content": content} for role, content in messages]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return text.removeprefix(tokenizer.bos_token or "")
