"""The formats of decoders in transformers."""
