"""GGUF, the files of llama.cpp and of what is built on it: Ollama, LM Studio and others."""
