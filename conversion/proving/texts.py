# ruff: noqa: RUF001 (texts of many scripts)
"""Texts and chats that a model and a file are asked about, by what each of them holds."""

from ..runtimes.gguf.pre_tokenizers import TEXT

TEXTS = {
    "English": "The quick brown fox jumps over the lazy dog. They're here; I'd say it isn't so!",
    "capitals": "NASA's iPhone12Pro, USAToday, camelCase, SCREAMING_CASE and McDonald's",
    "digits": "1 12 123 1234 12345678 3.14159 1,234,567.89 2026-11-25 0x1F 10^-3",
    "blanks": "  two  spaces\n\n\nnew lines\t\ttabs \r\n and  a   tail   ",
    "code": "def f(x_1, *args):\n    return {'a': x_1 ** 2, \"b\": [i for i in args]}  # why?\n",
    "accents": "naïve café, Übergröße, Straße, ŁÓDŹ, İstanbul, ¿qué? “quotes” — dashes…",
    "decomposed": "cafe\u0301 man\u0303ana u\u0308ber \ufb01ne \u00bd \u00b2 \u2167 \u212b",
    "Cyrillic and Greek": "Привет, мир! Ёлка. Γειά σου Κόσμε, Ὀδυσσεύς",
    "Hebrew and Arabic": "שלום עולם. مرحبا بالعالم، كيف الحال؟ ٣٤٥",
    "Hindi and Thai": "नमस्ते दुनिया। १२३ สวัสดีชาวโลก",
    "Chinese and Japanese": "你好，世界！我们在２０２６年。こんにちは世界、カタカナ。",
    "Korean": "안녕하세요 세계, 한국어 텍스트입니다.",
    "emoji": "🚀 👩‍💻👨‍👩‍👧‍👦 🇫🇷🇯🇵 ❤️ 😀😃 a🙂b 👍🏽 ©™",
    "all of it": TEXT,
}
QUESTION = {"role": "user", "content": "  What is 2 + 2?\n"}
REPLY = {"role": "assistant", "content": "It is 4. "}
SYSTEM = {"role": "system", "content": "You answer in one word."}
# Chats, and whether the model is to answer next.
CHATS = {
    "a question": ([QUESTION], True),
    "a system prompt": ([SYSTEM, QUESTION], True),
    "several turns": ([QUESTION, REPLY, QUESTION], True),
    "a finished chat": ([QUESTION, REPLY], False),
}
# What a greedy continuation begins with.
BEGINNINGS = ("Once upon a time", "The capital of France is", "def add(a, b):\n")
