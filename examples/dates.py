"""Dates as people write them in sixteen languages, and what they are in ISO 8601.

A task without end that costs no download, small enough for a CPU and still a translation: words,
their order and three scripts change, `söndag 5 mars 2023` and `2023年3月5日日曜日` mean the same.
"""

import datetime
import random
from typing import NamedTuple

from babel.dates import format_date, format_skeleton

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
LANGUAGES = (
    *("cs", "de", "el", "en", "es", "fi", "fr", "it"),
    *("ja", "nl", "pl", "pt", "ru", "sv", "tr", "zh"),
)
# Babel's lengths, and a skeleton with the short name of the weekday. Its "short" is left out: two
# digits do not name a century, and 3/2/21 is in March here and in February there.
FORMATS = ("full", "long", "medium", "yMMMEd")
HELD_OUT = 1000  # dates to validate with, and as many to test with


class Pair(NamedTuple):
    source: str
    target: str
    language: str = ""


def write_date(date, language, form):
    if form in ("full", "long", "medium"):
        return format_date(date, form, locale=language)
    return format_skeleton(form, date, locale=language)


def date_pairs(number, seed=0):
    """Three lists of pairs; no date of one appears in another, in whatever language."""
    generator = random.Random(seed)
    dates = [FIRST + datetime.timedelta(days=n) for n in range((LAST - FIRST).days + 1)]
    generator.shuffle(dates)
    held_out = {"validation": dates[:HELD_OUT], "test": dates[HELD_OUT : 2 * HELD_OUT]}
    splits = {split: [pair_of(date, generator) for date in held_out[split]] for split in held_out}
    others = generator.choices(dates[2 * HELD_OUT :], k=number)
    return {"train": [pair_of(date, generator) for date in others], **splits}


def pair_of(date, generator):
    language, form = generator.choice(LANGUAGES), generator.choice(FORMATS)
    return Pair(write_date(date, language, form), date.isoformat(), language)
