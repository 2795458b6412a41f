"""Formulas of the book as MathML: what the converter leaves undone, so that no script is needed.

It sets names of functions without a space ("cospθ"), primes far above their letters and a minus
sign after = as a difference; and no browser breaks a formula that is wider than a phone.
"""

import re
from itertools import pairwise
from xml.etree import ElementTree

from latex2mathml.converter import convert

MATHML = "http://www.w3.org/1998/Math/MathML"
FUNCTIONS = {"arg", "cos", "exp", "log", "max", "min", "sin", "tanh"}
PRIME, MINUS, SLASH = "\u2032", "\u2212", "/"
OPENING = {"(", "[", "{", "|"}
BREAK = re.compile(r"(?:\\qquad\s*)+")  # the book writes it between two formulas of a line

ElementTree.register_namespace("", MATHML)


def tag(name: str) -> str:
    return f"{{{MATHML}}}{name}"


def mathml(source: str, is_block: bool) -> str:
    """Return a formula; those of one line are separate, so that a narrow screen can break it."""
    source = source.replace(r"\arg", r"\operatorname{arg}")
    if not is_block:
        return converted(source, "inline")
    parts = "".join(converted(part, "block") for part in BREAK.split(source))
    return f'<div class="book-formula">{parts}</div>'


def converted(source: str, display: str) -> str:
    try:
        made = convert(source, display=display)
    except Exception as error:
        raise ValueError(f"no formula: {source} ({error!r})") from error
    # The converter passes on what it does not support, and closes what was left open.
    if "\\" in made or source.count("{") != source.count("}"):
        raise ValueError(f"no formula: {source}")
    root = ElementTree.fromstring(made)
    for element in list(root.iter()):
        lower_prime(element)
    for row in list(root.iter(tag("mrow"))):
        space_functions(row)
        mark_signs(row)
    for element in root.iter(tag("mo")):
        if element.text == SLASH:
            element.set("lspace", "0")
            element.set("rspace", "0")
    return ElementTree.tostring(root, encoding="unicode")


def lower_prime(element: ElementTree.Element) -> None:
    """Set a prime beside its letter: most fonts have raised the sign already."""
    if element.tag not in (tag("msup"), tag("msubsup")) or element[-1].text != PRIME:
        return
    primed = ElementTree.Element(tag("mrow"))
    sign = ElementTree.Element(tag("mo"), lspace="0", rspace="0")
    sign.text = PRIME
    primed.extend((element[0], sign))
    element.remove(element[-1])
    element[0] = primed
    element.tag = tag("mrow") if element.tag == tag("msup") else tag("msub")


def name_of(element: ElementTree.Element) -> str:
    """Return the text of an element, or that of what its indices stand at."""
    while element.tag in (tag("msub"), tag("msup"), tag("munder"), tag("mrow")) and len(element):
        element = element[0]
    return element.text or ""


def space_functions(row: ElementTree.Element) -> None:
    """Set a thin space where a name of a function touches a letter, as TeX does."""
    made = list(row[:1])
    for left, right in pairwise(row):
        if needs_space(left, right):
            made.append(ElementTree.Element(tag("mspace"), width="0.167em"))
        made.append(right)
    row[:] = made
    for element in row.iter():
        if element.tag == tag("mo") and element.text in FUNCTIONS:
            element.tag = tag("mi")  # an operator would bring spaces of its own


def needs_space(left: ElementTree.Element, right: ElementTree.Element) -> bool:
    if name_of(left) in FUNCTIONS:
        return not is_operator(right) and name_of(right) not in OPENING
    return name_of(right) in FUNCTIONS and (not is_operator(left) or name_of(left) == ")")


def is_operator(element: ElementTree.Element) -> bool:
    return element.tag in (tag("mo"), tag("mspace")) and name_of(element) not in FUNCTIONS


def mark_signs(row: ElementTree.Element) -> None:
    """Set a minus that follows an operator close to its number."""
    for left, right in pairwise(row):
        if left.tag == right.tag == tag("mo") and right.text == MINUS and left.text != ")":
            right.set("form", "prefix")
            right.set("rspace", "0")
