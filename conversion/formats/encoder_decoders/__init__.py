"""The formats of encoder-decoders in transformers."""
