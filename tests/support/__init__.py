"""Helpers that several rooms of tests share: models, folders, servers, comparisons."""
