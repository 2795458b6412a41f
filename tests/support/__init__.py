"""What several tests need: models, folders, servers, comparisons."""
