"""The formats of encoders in transformers."""
