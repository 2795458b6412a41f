"""The code that travels with every checkpoint; this file alone stays at home."""
