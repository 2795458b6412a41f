"""The formats of programs that save weights of plain PyTorch modules."""
