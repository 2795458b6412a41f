"""The attention page in a real browser: what it shows is the tensor, whoever asks it how."""

import re
import shutil

import pytest
import torch
from transformers import BertConfig, BertModel

from hf_tformer import attention_maps
from hf_tformer.view import AttentionMap
from hf_tformer.view.attention import AttentionMaps
from support.attention_pages import IDS, SIZES, build, hostile_maps, maps_of
from support.families import DECODER, SEQ2SEQ
from support.paths import ROOT

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EIGHT = {"num_attention_heads": 8}
MODELS = ("ours", "ours-seq2seq", "llama", "bert", "bart", "t5")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens maps as a reader does, from a disk; nothing may leave the page or fail in it."""
    contexts, left, faults = [], [], []

    def show(*maps, **options):
        path = tmp_path / "attention.html"
        maps[0].save_html(path, *maps[1:])
        context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 850}, "locale": "en-US", **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: left.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(path.as_uri())
        drawn(page)
        return page

    yield show
    for context in contexts:
        context.close()
    assert [url for url in left if not url.startswith("file:")] == []
    assert faults == []


def drawn(page):
    page.locator("body[data-drawn]").wait_for()
    page.wait_for_timeout(150)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    drawn(page)


def to_the_first_head(page):
    """The page begins with the head that says most."""
    press(page, *["ArrowLeft"] * 4, *["ArrowUp"] * 12)


def model_called(name):
    if name.startswith("ours"):
        return (SEQ2SEQ if "seq2seq" in name else DECODER).build()
    return build(name)


def point_at(page, row, column):
    """What the pointer shows over a cell of the map."""
    place = page.evaluate(
        """() => {
            const map = document.querySelector("div.map:not(.view)");
            const box = map.getBoundingClientRect();
            return [box.left, box.top, Number(map.dataset.cell), Number(map.dataset.margin)];
        }"""
    )
    left, top, cell, margin = place
    page.mouse.move(left + margin + (column + 0.5) * cell, top + margin + (row + 0.5) * cell)
    return page.inner_text(".tip")


@pytest.mark.parametrize("name", MODELS)
def test_the_pointer_shows_the_tensor(name, opened):
    maps = maps_of(model_called(name))
    page = opened(maps)
    press(page, "3")
    for kind, one in maps.items():
        if len(maps) > 1:
            page.click(f".kinds button:has-text('{kind}')")
            drawn(page)
        layers, heads, rows, columns = one.weights.shape
        for layer in range(layers):
            for head in (0, heads - 1):
                page.locator("label:has-text('Layer') input").fill(str(layer))
                page.locator("label:has-text('Head') input").fill(str(head))
                drawn(page)
                for row, column in ((0, 0), (rows - 1, 0), (rows - 1, columns - 1), (1, 1)):
                    shown = point_at(page, row, column)
                    weight = one.weights[layer, head, row, column].item()
                    assert shown.startswith(f"{one.rows[row]} → {one.columns[column]}: ")
                    assert abs(float(shown.split()[-1]) - weight) < 1.4e-5, shown


def test_neurons_end_in_the_same_weights(opened):
    """Query, key, products, sum, scale and softmax are computed on the page."""
    maps = maps_of(model_called("ours"))
    page = opened(maps)
    to_the_first_head(page)
    press(page, "4", "ArrowRight", "ArrowDown")
    (row, weights) = 6, maps["decoder"].weights[1, 1, 6]
    shown = [float(text) for text in page.locator(".neurons td.weight").all_inner_texts()]
    torch.testing.assert_close(torch.tensor(shown), weights, atol=2e-5, rtol=0)
    scores = maps["decoder"].scores[1]
    sums = (scores.query[1, row] * scores.key[1]).sum(-1)
    cells = page.locator(".neurons tbody tr td:nth-child(4)").all_inner_texts()
    torch.testing.assert_close(torch.tensor([*map(float, cells)]), sums, atol=2e-3, rtol=1e-3)
    page.locator(".neurons tbody tr").nth(2).click()
    drawn(page)
    formula = page.inner_text(".formula")
    assert f"= {weights[2]:.5f}"[:-1] in formula
    before = page.evaluate("document.querySelector('.query canvas').title")
    page.check("text=before they are turned")
    drawn(page)
    assert page.evaluate("document.querySelector('.query canvas').title") != before
    after = page.locator(".neurons tbody tr td:nth-child(4)").all_inner_texts()
    assert after == cells, "sums are of what is compared"


def test_a_row_of_padding_has_no_formula_and_another_can_be_chosen(opened):
    inputs = {"input_ids": IDS, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1]])}
    page = opened(attention_maps(model_called("llama"), inputs))
    press(page, "4")
    chooser = page.locator("label:has-text('Token that looks') select")
    chooser.select_option("0")
    drawn(page)
    assert "it is padding" in page.inner_text("main")
    chooser.select_option("4")
    drawn(page)
    assert page.locator(".neurons tbody tr").count() == 3


def test_a_bias_is_shown_where_distances_add_to_scores(opened):
    page = opened(maps_of(model_called("t5")))
    page.click(".kinds button:has-text('decoder')")
    press(page, "4")
    assert "+ bias" in page.inner_text(".neurons thead")


def test_keys_and_sliders_choose_what_is_drawn(opened):
    page = opened(maps_of(model_called("ours")))
    layer = page.locator("label:has-text('Layer') output")
    press(page, "ArrowRight", "ArrowRight")
    assert layer.inner_text() == "1"  # of two
    press(page, "ArrowLeft")
    assert layer.inner_text() == "0"
    page.locator("label:has-text('Layer') input").fill("1")
    drawn(page)
    assert layer.inner_text() == "1"
    assert page.evaluate("document.activeElement.type") == "range", "the focus stays"
    page.keyboard.press("ArrowLeft")  # the slider's own key
    drawn(page)
    assert layer.inner_text() == "0"


@pytest.mark.parametrize(("key", "name", "last"), [("1", "Layer", "1"), ("3", "Zoom", "40 px")])
def test_a_slider_follows_the_pointer_all_the_way(key, name, last, opened):
    """Each step of it draws anew, and must not take it out of the hand."""
    page = opened(maps_of(model_called("ours")))
    press(page, key)
    box = page.locator(f"label:has-text('{name}') input").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, middle)
    page.mouse.down()
    shown = []
    for share in (0.2, 0.4, 0.6, 0.8, 1.2):
        page.mouse.move(box["x"] + share * box["width"], middle)
        drawn(page)
        shown.append(page.inner_text(f"label:has-text('{name}') output"))
    page.mouse.up()
    assert shown[-1] == last, shown
    assert page.evaluate("document.activeElement.type") == "range"


def long_maps(length=100):
    ids = torch.arange(length)[None] % 20 + 5
    return attention_maps(DECODER.build(), {"input_ids": ids})


def scrolled(page, view):
    return page.evaluate(f"document.querySelector('div.{view}:not(.view)').scrollTop")


def test_what_is_scrolled_stays_where_it_is(opened):
    page = opened(long_maps())
    page.locator(".left .token").nth(70).click()
    drawn(page)
    assert scrolled(page, "lines") > 500
    press(page, "Escape", "3")
    page.locator("label:has-text('Zoom') input").fill("20")
    drawn(page)
    page.evaluate("document.querySelector('div.map:not(.view)').scrollTop = 900")
    box = page.locator("div.map:not(.view)").bounding_box()
    page.mouse.click(box["x"] + 150, box["y"] + 300)
    drawn(page)
    assert scrolled(page, "map") == 900
    press(page, "ArrowRight")
    assert scrolled(page, "map") == 900


def test_the_cell_that_keys_move_to_stays_in_sight_and_the_table_open(opened):
    page = opened(long_maps())
    press(page, "3")
    page.locator("label:has-text('Zoom') input").fill("20")
    drawn(page)
    page.click("summary")
    page.focus("div.map:not(.view)")
    press(page, *["ArrowDown"] * 40)
    bottom = page.locator("div.map:not(.view)").evaluate("map => map.scrollTop + map.clientHeight")
    assert bottom >= 96 + 40 * 20
    assert page.inner_text("tbody th") == page.inner_text(".status").split()[0]
    press(page, *["ArrowUp"] * 40)
    assert scrolled(page, "map") == 0


def lines_drawn(page):
    return page.evaluate(
        """() => {
            const canvas = document.querySelector(".between canvas");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return data.data.filter((value, i) => i % 4 === 3 && value > 0).length;
        }"""
    )


def test_pointing_at_a_token_shows_its_lines_alone_and_a_click_keeps_them(opened):
    maps = maps_of(model_called("ours"))
    page = opened(maps)
    to_the_first_head(page)
    one_head = lines_drawn(page)
    token = page.locator(".left .token").nth(3)
    token.hover()
    weights = maps["decoder"].weights[0, :, 3]
    best = weights[0].amax().item()
    assert f" {best:.5f}"[:-1] in page.inner_text(".status")
    page.click("text=all >> nth=-1")
    drawn(page)
    page.mouse.move(5, 5)
    everything = lines_drawn(page)
    assert everything > one_head
    token.hover()
    alone = lines_drawn(page)
    assert 0 < alone < everything
    strength = page.locator(".right .token").evaluate_all(
        "all => all.map(one => Number(one.style.getPropertyValue('--strength')))"
    )
    torch.testing.assert_close(torch.tensor(strength), weights.amax(0), atol=1e-3, rtol=0)
    best = weights.amax().item()  # the number beside the darkest token is its colour
    assert f" {best:.5f}"[:-1] in page.inner_text(".status")
    assert f"(head {weights.amax(1).argmax()})" in page.inner_text(".status")
    token.click()
    drawn(page)
    page.mouse.move(5, 5)
    assert lines_drawn(page) == alone, "pinned"
    press(page, "Escape")
    assert lines_drawn(page) == everything
    for chip in range(len(weights)):
        page.click(f".chip >> nth={chip}")
    drawn(page)
    assert lines_drawn(page) == 0
    page.click(".chip >> nth=2")
    drawn(page)
    assert 0 < lines_drawn(page) < everything
    page.click("text=one")
    drawn(page)
    pressed = page.locator(".chip[aria-pressed=true]").all_inner_texts()
    assert pressed == ["2"]


def test_the_first_view_is_one_head_that_follows_a_rule_and_says_which(opened):
    """The weights of head 2 in layer 1 are on the token before; all others are spread."""
    weights = torch.ones(2, 4, 6, 6).tril()
    weights[1, 2] = torch.eye(6).roll(1, 0).tril() + torch.eye(6)[0] * 0.0
    weights[1, 2, 0, 0] = 1
    weights = weights / weights.sum(-1, keepdim=True)
    tokens = ["a", "b", "c", "d", "e", "a"]
    page = opened(AttentionMaps(decoder=AttentionMap("decoder", weights, tokens, tokens)))
    assert page.locator(".chip[aria-pressed=true]").all_inner_texts() == ["2"]
    about = page.inner_text(".about")
    assert about.startswith("Layer 1, Head 2: ")
    assert "previous token 1.00" in about
    assert "induction" in about
    assert "(tokens that repeat: 1)" in about  # which is too few to choose by
    assert about.endswith("Shown first of all heads, by mean weight on the token before.")
    press(page, "ArrowUp")
    assert "Shown first" not in page.inner_text(".about")


def test_short_texts_take_the_room_that_there_is(opened):
    page = opened(maps_of(model_called("ours")))
    assert page.locator(".left .token").first.bounding_box()["height"] == 40


def test_the_bars_of_the_next_token_are_the_softmax_of_the_model(opened):
    model = DECODER.build(vocab_size=97)
    written = model.generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    page = opened(attention_maps(model, {"input_ids": written}, written_from=IDS.shape[1]))
    press(page, "5", "ArrowRight")
    with torch.no_grad():
        logits = model(written).logits[0, IDS.shape[1]]
    for temperature in ("1", "0.5", "2"):
        page.locator("label:has-text('Temperature') input").fill(temperature)
        drawn(page)
        shown = page.locator(".candidates li output").all_inner_texts()
        found = torch.tensor([float(text.split()[0]) for text in shown]) / 100
        expected = (logits / float(temperature)).softmax(-1).topk(10).values
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    assert page.locator(".taken bdi").inner_text() == str(written[0, IDS.shape[1] + 1].item())


def test_what_is_touched_gets_hints_for_fingers_and_sees_every_head(opened):
    maps = attention_maps(
        DECODER.build(num_attention_heads=12, num_key_value_heads=12), {"input_ids": IDS}
    )
    options = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    page = opened(maps, **options)
    assert page.inner_text(".status").startswith("Tap a token")
    page.locator(".left .token").nth(2).tap()
    drawn(page)
    assert page.locator(".token[aria-pressed=true]").count() == 1
    press(page, "2")
    right = page.locator(".cell").evaluate_all(
        "all => Math.max(...all.map(one => one.getBoundingClientRect().right))"
    )
    assert right <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_read_in_every_view(scheme, opened):
    """The contrast of each text with what is behind it, by the styles that the browser computed."""
    model = DECODER.build()
    written = model.generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    maps = attention_maps(model, {"input_ids": written}, written_from=IDS.shape[1])
    page = opened(maps, color_scheme=scheme)
    for view in "12345":
        press(page, view)
        if view == "1":
            page.locator(".left .token").nth(4).hover()
        assert page.evaluate(CONTRASTS.replace("LEAST", "30")), "texts are found"
        faint = page.evaluate(CONTRASTS.replace("LEAST", "4.5"))
        assert faint == [], (view, faint)


CONTRASTS = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].reduce((sum, value, i) => {
        const share = value / 255;
        const part = share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        return sum + part * [0.2126, 0.7152, 0.0722][i];
    }, 0);
    const behind = (element) => {
        const layers = [];
        for (let one = element; one; one = one.parentElement) {
            const color = parse(getComputedStyle(one).backgroundColor);
            layers.push(color.length === 3 ? [...color, 1] : color);
        }
        return layers.reverse().reduce(
            (back, [r, g, b, a]) => [r, g, b].map((value, i) => value * a + back[i] * (1 - a)),
            [255, 255, 255],
        );
    };
    const faint = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        const isText = !element.matches("script, style, option");
        if (!own || !isText || !element.getClientRects().length) continue;
        const color = light(parse(getComputedStyle(element).color));
        const [low, high] = [color, light(behind(element))].sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < LEAST) faint.push(`${element.textContent} ${contrast.toFixed(2)}`);
    }
    return faint;
}"""


def test_what_is_said_of_a_token_is_of_the_layer_that_is_shown(opened):
    maps = maps_of(model_called("ours"))
    page = opened(maps)
    to_the_first_head(page)
    page.locator(".left .token").nth(3).click()
    page.mouse.move(5, 5)
    page.locator("label:has-text('Layer') input").fill("1")
    drawn(page)
    best = maps["decoder"].weights[1, 0, 3].max().item()
    assert f"{best:.5f}"[:-1] in page.inner_text(".status")
    press(page, "2")
    assert page.inner_text(".status").startswith("Keys")


def test_the_grid_shows_each_head_sorts_them_and_leads_to_the_map(opened):
    maps = maps_of(model_called("ours"))
    page = opened(maps)
    press(page, "2")
    cells = page.locator(".cell")
    assert cells.count() == 12
    page.select_option("label:has-text('Sort by') select", "entropy")
    drawn(page)
    values = [float(text.split()[-1]) for text in page.locator(".cell span").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    weights = maps["decoder"].weights
    entropy = -(weights * weights.clamp_min(1e-30).log2()).sum(-1).mean(-1)
    assert abs(values[0] - entropy.max().item()) < 0.006
    page.locator("label:has-text('at least') input").fill("0.5")
    drawn(page)
    assert 0 < page.locator(".cell.shaded").count() < 12
    layer, head = divmod(int(entropy.argmax()), entropy.shape[1])
    cells.first.click()
    drawn(page)
    assert page.get_attribute("div.map:not(.view)", "aria-label").startswith(
        f"Layer {layer}, Head {head}:"
    )


def test_each_step_of_writing_shows_the_row_that_wrote_it(opened):
    model = SEQ2SEQ.build()
    written = model.generate(IDS, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    inputs = {"input_ids": IDS, "decoder_input_ids": written}
    maps = attention_maps(model, inputs, written_from=1)
    page = opened(maps)
    to_the_first_head(page)
    press(page, "5", "ArrowRight", "ArrowRight", "ArrowRight")
    assert page.inner_text(".written").split()[-1] == maps["cross"].rows[4]
    source = page.locator("section:has(> h3:text-is('source')) .weight").evaluate_all(
        "all => all.map(one => Number(one.dataset.weight))"
    )
    expected = maps["cross"].weights[0, :, 3].mean(0)
    torch.testing.assert_close(torch.tensor(source), expected, atol=2e-5, rtol=0)
    own = page.locator("section:has(> h3:text-is('its own text')) .weight")
    assert own.count() == 4
    page.click("text=Play")
    page.locator("output:text-is('5 / 5')").wait_for()


def test_two_models_stand_side_by_side(opened):
    page = opened(maps_of(model_called("ours")), maps_of(model_called("bert")))
    page.select_option("label:has-text('Beside') select", "1")
    drawn(page)
    assert page.locator(".panel").count() == 2
    assert page.locator(".panel h2").all_inner_texts()[1] == "BertModel: 5 6 7 8 5 6 9 · encoder"
    press(page, "3")
    assert page.locator("div.map:not(.view)").count() == 2


def test_all_of_the_second_model_can_be_reached(opened):
    """It has more layers, heads and tokens, and kinds that the first lacks."""
    large = BertModel(BertConfig(vocab_size=50, **SIZES | {"num_hidden_layers": 4}, **EIGHT)).eval()
    maps = attention_maps(large, {"input_ids": torch.arange(5, 17)[None]})
    page = opened(maps_of(model_called("ours")), maps)
    page.select_option("label:has-text('Beside') select", "1")
    press(page, "3", *["ArrowRight"] * 5, *["ArrowDown"] * 9)
    headings = page.locator(".panel h2").all_inner_texts()
    assert headings[0].endswith(" · Layer 1 · Head 5")
    assert headings[1] == "BertModel: 5 6 7 8 9 10 11 12 · encoder"
    second = page.locator("div.map:not(.view)").nth(1)
    assert second.get_attribute("aria-label").startswith("Layer 3, Head 7")
    press(page, "1")
    token = page.locator(".panel >> nth=1").locator(".left .token").nth(11)
    token.click()
    drawn(page)
    assert token.get_attribute("aria-pressed") == "true"


def test_each_of_two_texts_plays_to_its_own_end(opened):
    model = DECODER.build()
    maps = [
        attention_maps(model, {"input_ids": IDS[:, :length]}, written_from=1) for length in (3, 6)
    ]
    page = opened(*maps)
    page.select_option("label:has-text('Beside') select", "1")
    press(page, "5")
    page.locator("text=Play").nth(1).click()
    page.locator("output:text-is('5 / 5')").wait_for()
    assert page.locator("button:text-is('Stop')").count() == 0
    assert page.locator("output:text-is('2 / 2')").count() == 1


@pytest.mark.parametrize("width", [320, 400, 700])
def test_a_narrow_window_shows_all(width, opened):
    """Lines end where the tokens begin, and nothing is wider than the window."""
    page = opened(maps_of(model_called("ours")), viewport={"width": width, "height": 800})
    lines = page.locator(".between canvas").bounding_box()
    token = page.locator(".right .token").first.bounding_box()
    assert lines["x"] + lines["width"] <= token["x"] + 1
    assert page.locator("nav").bounding_box()["height"] < 70
    for key in "1234":
        press(page, key)
        wider = page.locator("main > * > *, header > * > *").evaluate_all(
            "all => all.filter(one => one.getBoundingClientRect().right > innerWidth).length"
        )
        assert wider == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_view_that_is_not_offered_has_no_key(opened):
    page = opened(maps_of(model_called("ours")))
    press(page, "3", "5")
    assert page.locator("nav [aria-pressed=true]").inner_text() == "Map"


def test_dark_follows_the_system_and_the_button(opened):
    page = opened(maps_of(model_called("ours")), color_scheme="dark")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(back)
    assert dark == "rgb(24, 26, 31)"
    page.click("text=Dark or light")
    assert page.evaluate(back) == "rgb(255, 255, 255)"
    page.click("text=Dark or light")
    assert page.evaluate(back) == dark


def test_chinese_readers_find_chinese(opened):
    page = opened(maps_of(model_called("ours")), locale="zh-CN")
    assert page.inner_text("h1") == "注意力"
    page.click("text=English")
    assert page.inner_text("h1") == "Attention"


def test_the_map_can_be_heard(opened):
    """By keys, a cell after the other, and as a table."""
    maps = maps_of(model_called("ours"))
    page = opened(maps)
    to_the_first_head(page)
    press(page, "3")
    page.focus("div.map:not(.view)")
    press(page, "ArrowDown", "ArrowDown", "ArrowRight")
    weight = maps["decoder"].weights[0, 0, 1, 1].item()
    assert abs(float(page.inner_text(".status").split()[-1]) - weight) < 1.4e-5
    page.click("summary")
    rows = page.locator("table tbody tr")
    rows.nth(6).wait_for()  # filled once it is open
    assert rows.count() == 7
    shown = [float(text) for text in rows.nth(6).locator("td").all_inner_texts()]
    torch.testing.assert_close(
        torch.tensor(shown), maps["decoder"].weights[0, 0, 6], atol=2e-5, rtol=0
    )


def test_hostile_tokens_show_as_text(opened):
    page = opened(hostile_maps())
    for key in "1234":
        press(page, key)
        assert page.locator("img, iframe, script[src]").count() == 0
    press(page, "1")
    tokens = page.locator(".left bdi").all_inner_texts()
    assert tokens[0].startswith("<script>alert(1)")
    assert len(tokens[8]) <= 24
    box = page.locator(".left .token").nth(8).bounding_box()
    assert box["width"] < 500


def test_it_opens_in_a_sandboxed_frame(browser, tmp_path):
    (tmp_path / "notebook.html").write_text(
        f"<!doctype html><body>{maps_of(model_called('ours'))._repr_html_()}", encoding="utf-8"
    )
    page = browser.new_page()
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("h1").wait_for()
    assert frame.locator(".left .token").count() == 7
    page.close()


def test_a_thousand_tokens_stay_usable(opened):
    """24 layers of 16 heads, weights of which each row is sharp, as trained ones are."""
    torch.manual_seed(0)
    length = 1000
    places = torch.arange(length)
    scores = -(places[:, None] - places[None]).abs().float() / 8
    head = scores.masked_fill(places[None] > places[:, None], float("-inf")).softmax(-1)
    tokens = [f"word{i}" for i in range(length)]
    weights = head.expand(24, 16, length, length)
    maps = AttentionMaps(decoder=AttentionMap("decoder", weights, tokens, tokens))
    page = opened(maps)
    for keys in (["1"], ["3"], ["ArrowRight"], ["2"]):
        took = page.evaluate("performance.now()")
        press(page, *keys)
        assert page.evaluate("performance.now()") - took < 5000
    press(page, "3")
    shown = point_at(page, 0, 0)
    assert re.fullmatch(r"word0 → word0: 1\.000", shown)


def test_the_screenshots_of_the_docs_are_there():
    pictures = ROOT / "docs" / "pictures"
    assert (pictures / "attention-page.png").stat().st_size > 10_000
