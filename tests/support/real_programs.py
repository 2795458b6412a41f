"""The programs that ask released models, each run in a process of its own."""

# Greedy text of 20 chats; the model is one of ours, or transformers' own reading of a GGUF file.
CHATS = """
import json, sys, torch
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, file, dtype, prompts = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
where = {"gguf_file": Path(file).name} if file != "-" else {"trust_remote_code": True}
if file == "-":
    import hf_tformer
place = folder if file == "-" else str(Path(file).parent)
model = AutoModelForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype), **where).eval()
found = []
for prompt in json.loads(prompts):
    chat = [{"role": "user", "content": prompt}]
    inputs = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(
        **inputs, max_new_tokens=100, do_sample=False, output_logits=True,
        return_dict_in_generate=True,
    )
    top = torch.stack(out.logits)[:, 0].float().topk(2).values
    written = out.sequences[0, inputs["input_ids"].shape[1]:]
    found.append([written.tolist(), (top[:, 0] - top[:, 1]).tolist()])
print(json.dumps(found))
"""

# Sentence vectors: the mean of the last hidden states of the real tokens, of length one.
VECTORS = """
import json, sys, torch
from transformers import AutoModel, AutoTokenizer
folder, package, sentences = sys.argv[1:]
if package == "without":
    sys.modules["hf_tformer"] = None
elif package == "with":
    import hf_tformer
tokenizer = AutoTokenizer.from_pretrained(folder)
trust = {} if package == "theirs" else {"trust_remote_code": True}
model = AutoModel.from_pretrained(folder, **trust).float().eval()
vectors = []
with torch.no_grad():
    for start in range(0, 200, 32):
        texts = json.loads(sentences)[start : start + 32]
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        states = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None].float()
        mean = (states * mask).sum(1) / mask.sum(1)
        vectors += torch.nn.functional.normalize(mean, dim=1).tolist()
print(json.dumps(vectors))
"""

# A stranger opens the folder: the package cannot be imported.
ELSEWHERE = """
import json, sys, torch
sys.modules["hf_tformer"] = None
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompt = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
chat = [{"role": "user", "content": prompt}]
inputs = tokenizer.apply_chat_template(
    chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
out = model.generate(**inputs, max_new_tokens=100, do_sample=False)
print(json.dumps(out[0, inputs["input_ids"].shape[1]:].tolist()))
"""

# Ten steps of LoRA on one batch: the loss falls, and the adapter is small.
LORA = """
import json, sys, torch
import hf_tformer
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
folder, kind = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
texts = ["The cat sat on the mat.", "It rains in Paris today.", "We read books at night."]
batch = tokenizer(texts, return_tensors="pt", padding=True) if kind == "encoder" else (
    tokenizer(texts[0] + " " + texts[1], return_tensors="pt"))
auto = AutoModelForCausalLM if kind == "decoder" else AutoModelForSequenceClassification
torch.manual_seed(0)
model = auto.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
labels = batch["input_ids"] if kind == "decoder" else torch.tensor([0, 1, 0])
task = "CAUSAL_LM" if kind == "decoder" else "SEQ_CLS"
model = get_peft_model(model, LoraConfig(r=8, task_type=task))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-3)
losses = []
for _ in range(10):
    loss = model(**batch, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(json.dumps([losses[0], losses[-1], trained]))
"""
