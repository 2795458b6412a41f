"""The tables of docs/SCANNERS.md, between two comments, in both languages."""

import re
from collections import Counter

from support.paths import ROOT

from . import forms

PAGES = {"en": ROOT / "docs" / "SCANNERS.md", "zh": ROOT / "docs" / "SCANNERS.zh-CN.md"}
PART = re.compile(r"(?<=<!-- tables -->\n).*?(?=<!-- end -->)", re.S)
CHINESE = {
    "danger": "危险",
    "honest": "正当的内容",
    "forms": "个数",
    "all": "合计",
    "starts programs, loads native code": "启动程序、加载本机代码",
    "runs text as code": "把文本当作代码运行",
    "reaches into the interpreter": "触及解释器内部",
    "unpickles": "反序列化 pickle",
    "reaches the network": "访问网络",
    "runs code from elsewhere": "运行别处的代码",
    "reads secrets": "读取密钥等私密内容",
    "writes or deletes files": "写入或删除文件",
    "changes torch or transformers": "改动 torch 或 transformers",
    "hands a module on, out of sight": "把模块传到看不见的地方",
    "computes what it calls": "所调用的名称由计算得出",
    "several of these, invented later": "后来构想的以上几类",
    forms.HIDDEN: "Python 读到的与人看到的不同",
    forms.FILES["field"]: "JSON 字段使代码被加载",
    forms.FILES["pickle"]: "文件本身是 pickle",
    forms.HONEST_CODE: "代码",
    forms.HONEST_FIELDS: "JSON 文件的字段",
    forms.HONEST_PICKLES: "pickle 与数组",
}


def counted(corpus, levels, high):
    """Count how many folders of each danger are reported: at any level, at a high one."""
    reported, highest = Counter(), Counter()
    for name, form in corpus.items():
        reported[form.danger] += bool(levels[name])
        highest[form.danger] += bool(levels[name].intersection(high))
    return reported, highest


def table(heading, corpus, counts, say):
    """Make a table with a row for each danger of a part of the corpus."""
    sizes = Counter(form.danger for form in corpus.values())
    rows = [[say(heading), say("forms"), *counts], ["---", *["---:"] * (1 + len(counts))]]
    for danger in [*sizes, None]:
        kinds = [danger] if danger else list(sizes)
        cells = [
            f"{sum(reported[k] for k in kinds)} / {sum(highest[k] for k in kinds)}"
            for reported, highest in counts.values()
        ]
        rows.append([say(danger or "all"), str(sum(sizes[k] for k in kinds)), *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def tables(language, hostile, honest, results, versions):
    """Return what stands between the comments of a page; results are by scanner."""
    say = CHINESE.__getitem__ if language == "zh" else str
    comma, stop = ("、", "。") if language == "zh" else (", ", ".")
    parts = [comma.join(f"{name} {version}" for name, version in versions.items()) + stop + "\n"]
    for heading, corpus in (("danger", hostile), ("honest", honest)):
        counts = {
            scanner.name: counted(corpus, levels, scanner.high)
            for scanner, levels in results.items()
        }
        parts.append(table(heading, corpus, counts, say))
    return "\n" + "\n".join(parts) + "\n"


def part_of(page):
    return PART.search(page.read_text(encoding="utf-8"))[0]


def write(page, text):
    page.write_text(PART.sub(lambda _: text, page.read_text(encoding="utf-8")), encoding="utf-8")
