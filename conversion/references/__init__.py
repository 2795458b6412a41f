"""What the weights of plain PyTorch programs mean: one short module per layout, as evidence.

Each is written from the layout's description and loads its state dict strictly. They serve the
proof alone, so they are as plain as possible, and use nothing of hf_tformer.
"""
