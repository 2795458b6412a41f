"""Proof of anybody's file: does it answer as the model of transformers that it was made from?"""
