"""Whether a model of ours computes what a plain module of a training program computes."""

import torch

LENGTH, NEW = 19, 8


def assert_same_model(ours, theirs, blocks, table, vocabulary=101):
    """Logits, hidden states, loss, the gradient of the embeddings, and greedy text with a cache.

    `theirs` takes ids and returns logits, `blocks` are its layers in order, `table` its embeddings,
    which may have more rows than there are ids.
    """
    ids = torch.randint(vocabulary, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    states = []
    hooks = [b.register_forward_hook(lambda m, i, out: states.append(first(out))) for b in blocks]
    expected = theirs(ids)
    for hook in hooks:
        hook.remove()
    actual = ours(input_ids=ids, labels=ids, output_hidden_states=True)
    torch.testing.assert_close(actual.logits, expected, rtol=1e-4, atol=1e-4)
    for state, of_block in zip(actual.hidden_states[1:-1], states[:-1], strict=True):
        torch.testing.assert_close(state, of_block, rtol=1e-4, atol=1e-4)
    loss = torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(actual.loss, loss, rtol=1e-4, atol=1e-5)
    loss.backward()
    actual.loss.backward()
    gradient = ours.get_input_embeddings().weight.grad
    torch.testing.assert_close(gradient, table.grad[: len(gradient)], rtol=1e-3, atol=1e-4)
    assert_same_text(ours, theirs, ids[:1, :5])


def first(output):
    return output if torch.is_tensor(output) else output[0]


@torch.no_grad()
def assert_same_text(ours, theirs, prompt):
    text = ours.generate(prompt, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    expected = prompt
    for _ in range(NEW):
        expected = torch.cat([expected, theirs(expected)[:, -1:].argmax(-1)], dim=1)
    assert text.tolist() == expected.tolist()


def assert_same_encoder(ours, theirs, table, vocabulary=101, padded=None):
    """Logits, the loss of some labels, the gradient of the embeddings; `padded` takes a mask."""
    ids = torch.randint(vocabulary, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    labels = torch.where(ids % 3 == 0, ids, -100)
    expected, actual = theirs(ids), ours(input_ids=ids, labels=labels)
    torch.testing.assert_close(actual.logits, expected, rtol=1e-4, atol=1e-4)
    loss = torch.nn.functional.cross_entropy(expected.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(actual.loss, loss, rtol=1e-4, atol=1e-5)
    loss.backward()
    actual.loss.backward()
    gradient = ours.get_input_embeddings().weight.grad
    torch.testing.assert_close(gradient, table.grad, rtol=1e-3, atol=1e-4)
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [11]])
    with torch.no_grad():
        short = ours(input_ids=ids, attention_mask=mask.long()).logits
        alone = theirs(ids[1:, :11])[0] if padded is None else padded(ids, mask)[1, :11]
    torch.testing.assert_close(short[1, :11], alone, rtol=1e-4, atol=1e-4)
