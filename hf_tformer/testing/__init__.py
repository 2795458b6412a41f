"""What this package is tested with, for models of others, too."""
