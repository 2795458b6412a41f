// What the page computes, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { contrast, headColor, weightColor } from "../src/color.ts";
import type { MapAbout, Payload, Rounding, Scores } from "../src/data.ts";
import { Head, Store, decode, format, split, unpack } from "../src/data.ts";
import { order } from "../src/grid.ts";
import { strongest } from "../src/lines.ts";
import { fullOf } from "../src/map.ts";
import { explain, unturned } from "../src/scores.ts";
import { initial, pressed, steps, within } from "../src/state.ts";
import { probabilities } from "../src/time.ts";
import { telling } from "../src/telling.ts";
import { LANGUAGES, MEASURES } from "../src/words.ts";

const LINEAR: Rounding = { name: "linear", bits: 16, error: 0.5 / 65535 };
const ROOT: Rounding = { name: "root", bits: 8, error: 1 / 255 };
const pack = (array: ArrayBufferView) =>
  deflateSync(Buffer.from(array.buffer, array.byteOffset, array.byteLength)).toString("base64");

const map: MapAbout = {
  kind: "decoder",
  rows: "source",
  columns: "source",
  layers: 2,
  heads: 3,
  chunks: "0-decoder",
  thumbnails: [],
  measures: {},
  repeats: 0,
  scores: [null, null],
};
const payload: Payload = {
  rounding: LINEAR,
  scoresLeftOut: false,
  entries: [{ title: "a", tokens: { source: ["x", "y"] }, writtenFrom: 1, writtenBy: [], maps: [map] }],
};

test("weights come back within the error that is stated", async () => {
  const weights = Float32Array.from({ length: 999 }, (_, i) => i / 998);
  const linear = Uint16Array.from(weights, (w) => Math.round(w * 65535));
  const root = Uint8Array.from(weights, (w) => Math.round(Math.sqrt(w) * 255));
  for (const [codes, rounding] of [[linear, LINEAR], [root, ROOT]] as const) {
    const found = decode(await unpack(pack(codes)), rounding);
    const worst = Math.max(...found.map((value, i) => Math.abs(value - weights[i])));
    assert.ok(worst <= rounding.error * 1.001, `${rounding.name}: ${worst}`);
  }
  assert.equal(format(0.123456, LINEAR), "0.12346");
  assert.equal(format(0.123456, ROOT), "0.123");
});

test("a head is read from its line, and a mean is taken over heads", async () => {
  const heads = [0, 0.5, 1].map((w) => pack(new Uint16Array(4).fill(Math.round(w * 65535))));
  const store = new Store(payload, (id) => (id === "weights-0-decoder-1" ? heads.join("\n") : null));
  const entry = payload.entries[0];
  assert.equal((await store.head(entry, map, 1, 2)).at(1, 1), 1);
  const mean = await store.mean(entry, map, 1, [0, 2]);
  assert.equal(mean.at(0, 1), 0.5);
  await assert.rejects(store.head(entry, map, 0, 0), /holds no weights-0-decoder-0/);
});

test("a token is as dark as the largest of its weights, and that weight is said of its head", () => {
  const heads = [[0.1, 0.9, 0.2, 0.8], [0.5, 0.5, 1, 0]].map((w) => new Head(2, 2, Float32Array.from(w)));
  const rounded = (place: Parameters<typeof strongest>[1]) =>
    strongest(heads, place).map(({ weight, head }) => [format(weight, ROOT), head]);
  assert.deepEqual(rounded({ side: "row", index: 0 }), [["0.500", 1], ["0.900", 0]]);
  assert.deepEqual(rounded({ side: "column", index: 0 }), [["0.500", 1], ["1.000", 1]]);
  assert.deepEqual(strongest([], { side: "row", index: 0 }), []);
});

test("the formula gives a softmax over what is not hidden", () => {
  const scores: Scores = {
    size: 2,
    scale: 0.5,
    cap: null,
    hasBias: true,
    turned: 0,
    hidden: Uint8Array.of(0, 0, 1),
    query: [Float32Array.of(1, 2)],
    key: [Float32Array.of(1, 1, 0, 2, 9, 9)],
    bias: [Float32Array.of(0, -1, 0)],
    cos: null,
    sin: null,
  };
  const { terms, largest, total } = explain(scores, 0, 0);
  assert.deepEqual(terms.map((t) => [t.column, t.sum, t.scaled, t.score]), [
    [0, 3, 1.5, 1.5],
    [1, 4, 2, 1],
  ]);
  const weights = terms.map((term) => Math.exp(term.score - largest) / total);
  assert.ok(Math.abs(weights[0] - Math.exp(1.5) / (Math.exp(1.5) + Math.exp(1))) < 1e-12);
  const capped = explain({ ...scores, cap: 1 }, 0, 0);
  assert.ok(Math.abs(capped.terms[0].scaled - Math.tanh(1.5)) < 1e-12);
});

test("turning is taken back, in halves, and what is not turned stays", () => {
  const angle = 0.7;
  const [x, y] = [3, -2];
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  const turned = Float32Array.of(x * c - y * s, y * c + x * s, 5);
  const scores = { turned: 2, cos: Float32Array.of(1, 1, c, c), sin: Float32Array.of(0, 0, s, s) };
  const before = unturned(turned, scores as unknown as Scores, 1);
  [x, y, 5].forEach((value, i) => assert.ok(Math.abs(before[i] - value) < 1e-5));
});

test("keys move within what there is", () => {
  let state = initial(payload);
  const press = (key: string) => {
    state = within({ ...state, ...pressed(key, state) }, payload);
  };
  press("ArrowRight");
  press("ArrowRight");
  assert.equal(state.layer, 1);
  press("ArrowUp");
  assert.equal(state.head, 0);
  press("5");
  assert.equal(state.view, "time");
  press("ArrowRight");
  assert.deepEqual([state.step, state.layer], [0, 1]); // one token was written
  assert.equal(pressed("q", state), null);
  assert.equal(steps({ ...payload.entries[0], writtenFrom: null }), 0);
});

test("a pinned token that the other text lacks is let go", () => {
  const longer = { ...payload.entries[0], tokens: { source: ["x", "y", "z"] } };
  const both = { ...payload, entries: [longer, payload.entries[0]] };
  const state = { ...initial(both), row: 2 };
  assert.equal(within(state, both).row, 2);
  assert.equal(within({ ...state, entry: 1 }, both).row, null);
});

test("heads are sorted by a measure, the largest first", () => {
  const cells = order(2, 2, [[0.1, 0.4], [0.3, 0.2]]);
  assert.deepEqual(cells.map(({ layer, head }) => [layer, head]), [[0, 1], [1, 0], [1, 1], [0, 0]]);
  assert.deepEqual(order(1, 2)[1], { layer: 0, head: 1, value: null });
});

test("both languages have every word, and each measure is explained", () => {
  for (const words of Object.values(LANGUAGES)) {
    for (const word of Object.values(words)) assert.ok(word.length > 0);
    for (const name of MEASURES) assert.ok(words[`${name}Why`]);
  }
  assert.deepEqual(Object.keys(LANGUAGES.zh), Object.keys(LANGUAGES.en));
});

test("colours: more weight is darker on light ground, and each head has its own", () => {
  const light = (weight: number) => weightColor(weight, false).reduce((a, b) => a + b);
  assert.ok(light(0) > light(0.1) && light(0.1) > light(0.5) && light(0.5) > light(1));
  assert.deepEqual(weightColor(2, true), weightColor(1, true));
  assert.equal(new Set([...Array(16).keys()].map((head) => headColor(head, 16, false))).size, 16);
});

test("a row of numbers is split in equal parts", () => {
  assert.deepEqual(split(Float32Array.of(1, 2, 3, 4), 2).map((p) => [...p]), [[1, 2], [3, 4]]);
});

/** The colour of a head as three numbers. */
function rgbOf(color: string): [number, number, number] {
  const [hue, saturation, light] = (color.match(/[\d.]+/g) as string[]).map(Number);
  const reach = (saturation / 100) * Math.min(light / 100, 1 - light / 100);
  const channel = (n: number) => {
    const place = (n + hue / 30) % 12;
    return 255 * (light / 100 - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1)));
  };
  return [channel(0), channel(8), channel(4)];
}

test("the line of every head is seen on a light and on a dark page", () => {
  for (const heads of [1, 4, 12, 32]) {
    for (let head = 0; head < heads; head++) {
      const light = rgbOf(headColor(head, heads, false));
      const dark = rgbOf(headColor(head, heads, true));
      assert.ok(contrast(light, [255, 255, 255]) >= 3, headColor(head, heads, false));
      assert.ok(contrast(dark, [24, 26, 31]) >= 3, headColor(head, heads, true));
    }
  }
  assert.equal(contrast([0, 0, 0], [255, 255, 255]), 21);
});

test("text is read on every strength of its background, in both themes", () => {
  const mixed = (glow: number[], back: number[], share: number) =>
    glow.map((value, i) => value * share + back[i] * (1 - share)) as [number, number, number];
  for (let share = 0; share <= 1; share += 0.1) {
    const light = mixed([33, 113, 181], [255, 255, 255], 0.65 * share);
    const dark = mixed([90, 160, 230], [24, 26, 31], 0.45 * share);
    assert.ok(contrast([29, 33, 41], light) >= 4.5, `light ${share}`);
    assert.ok(contrast([230, 233, 238], dark) >= 4.5, `dark ${share}`);
  }
});

test("the first view is a head that follows a rule, and not one that repeats by chance", () => {
  const measures = {
    entropy: [[2, 0.1, 2], [2, 2, 2]],
    previous: [[0.1, 0.2, 0.1], [0.1, 0.1, 0.7]],
    induction: [[0, 1, 0], [0, 0, 0]],
  };
  assert.deepEqual(pick(telling({ ...map, measures, repeats: 1 })), [1, 2, "previous"]);
  assert.deepEqual(pick(telling({ ...map, measures, repeats: 5 })), [0, 1, "induction"]);
  assert.deepEqual(pick(telling({ ...map, measures: { entropy: measures.entropy } })), [0, 1, "entropy"]);
  assert.deepEqual(pick(telling(map)), [0, 0, ""]);
  const chosen = { ...payload, entries: [{ ...payload.entries[0], maps: [{ ...map, measures, repeats: 1 }] }] };
  const state = initial(chosen);
  assert.deepEqual([state.layer, state.head, state.heads], [1, 2, null]);

  function pick({ layer, head, rule }: ReturnType<typeof telling>) {
    return [layer, head, rule];
  }
});

test("keys that change nothing in a view are none there", () => {
  const state = initial(payload);
  assert.deepEqual(pressed("ArrowDown", state), { head: 1, heads: null });
  for (const view of ["grid", "time"] as const) {
    assert.equal(pressed("ArrowDown", { ...state, view }), null);
  }
  assert.equal(pressed("ArrowLeft", { ...state, view: "grid" }), null);
  assert.deepEqual(pressed("ArrowRight", { ...state, view: "time" }), { step: 1 });
});

test("a map of small weights is not white: the colour is full where the largest hundredth begins", () => {
  const small = new Float32Array(10000).fill(0.001);
  small[0] = 1;
  assert.ok(Math.abs(fullOf(small) - 0.002) < 1e-6);
  assert.equal(fullOf(Float32Array.of(0.5, 0.5)), 1); // too few to judge by
  assert.equal(fullOf(new Float32Array(1000).fill(0.9)), 1);
});

test("a next token is as probable as a softmax over all tokens says, at every temperature", () => {
  const logits = [3, 2, 1, 0.5, 0.25];
  const next = { tokens: ["a", "b"], logits: [3, 2], others: [[1, 1], [0.5, 1], [0.25, 1]] as [number, number][] };
  for (const temperature of [0.1, 1, 2]) {
    const powers = logits.map((logit) => Math.exp(logit / temperature));
    const total = powers.reduce((a, b) => a + b);
    probabilities(next, temperature).forEach((share, i) => {
      assert.ok(Math.abs(share - powers[i] / total) < 1e-9);
    });
  }
});
