"""The README.md of a new folder: how to test, train, check and publish the model."""

from ..families import Family

TEXT = """\
# {name}

A model of its own kind. Three files are to be changed; the others are the plain files of hf_tformer
that they are built on.

| file | what it holds |
|---|---|
| `configuration_{model_type}.py` | its fields; `first_temperature` is an example |
| `modeling_{model_type}.py` | its layer; attention whose heads learn a temperature is an example |
| `test_{model_type}.py` | what hf_tformer promises of its models, tried on it; your own tests |

Before and after each change (`pip install "hf-tformer[test]"` brings pytest):

```bash
python -m pytest {folder}
```

What your idea makes impossible is waived by name and with a reason, in `test_{model_type}.py`.

Training:

```python
from {folder} import {name}Config, {head}
from transformers import Trainer, TrainingArguments

model = {head}({name}Config(vocab_size=32000))
Trainer(model, TrainingArguments("output"), train_dataset=dataset).train()
model.save_pretrained("trained")
```

Checking it, and sending it to the Hub:

```bash
tformer check trained
tformer publish trained user/{folder}
```

Elsewhere, where neither hf_tformer nor this folder is installed:

```python
from transformers import {auto}

model = {auto}.from_pretrained("user/{folder}", trust_remote_code=True)
```

`tformer refresh trained` brings the plain files to those of an hf_tformer that was installed later,
where the model answers as before. It leaves your files as they are; `cp trained/*.py {folder}/`
then brings the renewed ones here, and the tests above say whether they suit you.
"""


def readme(folder: str, family: Family, name: str, model_type: str) -> str:
    head = family.head.replace(family.prefix, name)
    return TEXT.format(
        folder=folder, name=name, model_type=model_type, head=head, auto=family.usual_auto
    )
