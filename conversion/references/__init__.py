"""Models of plain PyTorch programs, one short module per layout, that prove an import.

Each is written from the layout's description and loads its state dict strictly. They serve the
proof alone, so they are as plain as possible and use nothing of hf_tformer.
"""
