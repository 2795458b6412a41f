"""Dates as people write them in sixteen languages, and in ISO 8601.

An endless task that needs no download, small enough for a CPU and still a translation: words, their
order and three scripts change, `söndag 5 mars 2023` and `2023年3月5日日曜日` mean the same.
"""

import datetime
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from babel import Locale
from babel.dates import DateTimeFormat, format_date, format_skeleton, get_date_format

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
LANGUAGES = (
    *("cs", "de", "el", "en", "es", "fi", "fr", "it"),
    *("ja", "nl", "pl", "pt", "ru", "sv", "tr", "zh"),
)
# Babel's lengths, and a skeleton with the short name of the weekday. Its "short" is omitted: two
# digits do not name a century, and 3/2/21 is in March here and in February there.
LENGTHS = ("full", "long", "medium")
FORMATS = (*LENGTHS, "yMMMEd")
# Those that name the weekday. Without it 5 april 2023 is Dutch and Swedish, 1906年6月26日 Japanese
# and Chinese; with it two dates of a thousand are still written alike somewhere else.
WITH_WEEKDAY = ("full", "yMMMEd")
HELD_OUT = 1000  # dates to validate with, and as many to test with


class Pair(NamedTuple):
    source: str
    target: str
    language: str = ""


def write_date(date: datetime.date, language: str, style: str) -> str:
    if style in LENGTHS:
        return format_date(date, style, locale=language)
    return format_skeleton(style, date, locale=language)


def date_pairs(
    number: int, seed: int = 0, formats: Sequence[str] = FORMATS
) -> dict[str, list[Pair]]:
    """Return three lists of pairs; no date of one appears in another, in any language."""
    generator = random.Random(seed)
    dates = [FIRST + datetime.timedelta(days=n) for n in range((LAST - FIRST).days + 1)]
    generator.shuffle(dates)
    held_out = {"validation": dates[:HELD_OUT], "test": dates[HELD_OUT : 2 * HELD_OUT]}
    splits = {
        split: [pair_of(date, generator, formats) for date in held_out[split]] for split in held_out
    }
    others = generator.choices(dates[2 * HELD_OUT :], k=number)
    return {"train": [pair_of(date, generator, formats) for date in others], **splits}


def pair_of(date: datetime.date, generator: random.Random, formats: Sequence[str]) -> Pair:
    language, style = generator.choice(LANGUAGES), generator.choice(formats)
    return Pair(write_date(date, language, style), date.isoformat(), language)


# The field that a letter of a pattern stands for in Unicode's locale data.
PARTS = {"y": "year", "M": "month", "L": "month", "d": "day", "E": "weekday", "c": "weekday"}
FIELD = re.compile(r"%\((\w+)\)s")


class TaggedDate(NamedTuple):
    words: list[str]  # joined, they are the text
    tags: list[str]


def tagged_dates(number: int, seed: int = 0) -> list[TaggedDate]:
    """Return dates with a tag for each part: year, month, day, weekday, or other."""
    generator = random.Random(seed)
    days = (generator.randint(0, (LAST - FIRST).days) for _ in range(number))
    dates = (FIRST + datetime.timedelta(days=day) for day in days)
    return [
        tag_date(date, generator.choice(LANGUAGES), generator.choice(FORMATS)) for date in dates
    ]


def tag_date(date: datetime.date, language: str, style: str) -> TaggedDate:
    if style in LENGTHS:
        pattern = get_date_format(style, language).format
    else:
        pattern = Locale.parse(language).datetime_skeletons[style].format
    values, words, tags = DateTimeFormat(date, language), [], []
    for index, piece in enumerate(FIELD.split(pattern)):  # every second piece is a field
        if piece:
            words.append(values[piece] if index % 2 else piece)
            tags.append(PARTS[piece[0]] if index % 2 else "other")
    return TaggedDate(words, tags)


def same_dates(number: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Return pairs of texts: the same date, written in two languages."""
    generator = random.Random(seed)
    days = generator.choices(range((LAST - FIRST).days + 1), k=number)
    return [
        tuple(
            write_date(FIRST + datetime.timedelta(days=day), language, generator.choice(FORMATS))
            for language in generator.sample(LANGUAGES, 2)
        )
        for day in days
    ]
