// The formula of attention for one token: q, k, products, sum, scale, bias, softmax.

import { signColor } from "./color.ts";
import { format } from "./data.ts";
import type { Scores } from "./data.ts";
import { h, renew, select, sharpen, tokenElement, tokenLabel } from "./dom.ts";
import type { Panel } from "./panel.ts";
import type { Term } from "./scores.ts";
import { explain, part, unturned } from "./scores.ts";

const MOST = 60; // columns that are spelled out
const HEIGHT = 16; // of a strip

export async function drawNeurons(panel: Panel): Promise<void> {
  const { host, store, entry, map, layer, head, words, state, set } = panel;
  const scores = await store.scores(map, layer);
  if (!panel.isCurrent()) return;
  const rows = entry.tokens[map.rows];
  const row = state.row ?? rows.length - 1;
  const chooser = select(
    words.looking,
    rows.map((token, i) => [String(i), `${i} ${tokenLabel(token)}`]),
    String(row),
    (value) => set({ row: Number(value) }),
  );
  const top = [h("p", { className: "hint" }, words.neuronsHint)];
  if (!scores) {
    const why = store.payload.scoresLeftOut ? words.scoresLeftOut : words.noScores;
    renew(host, ...top, h("p", {}, why));
    return;
  }
  const { terms, largest, total } = explain(scores, head, row);
  if (!terms.length) {
    renew(host, ...top, h("div", { className: "controls" }, chooser), h("p", {}, words.seesNothing));
    return;
  }
  const shown = [...terms].sort((a, b) => b.score - a.score).slice(0, MOST);
  const chosen = shown.find((term) => term.column === state.column) ?? shown[0];
  shown.sort((a, b) => a.column - b.column);
  renew(
    host,
    ...top,
    h("div", { className: "controls" }, chooser, scores.turned ? turnBox(panel) : null),
    formula(panel, scores, chosen, largest, total),
    shown.length < terms.length ? h("p", { className: "hint" }, `${words.many} ${terms.length}`) : "",
    table(panel, scores, row, shown, largest, total),
  );
}

function turnBox({ words, state, set }: Panel): HTMLElement {
  return h(
    "label",
    { title: words.turnedNote },
    h("input", {
      type: "checkbox",
      checked: state.before,
      onchange: () => set({ before: !state.before }),
    }),
    ` ${words.unturned}`,
  );
}

const short = (value: number) => (Math.abs(value) >= 1000 ? value.toExponential(2) : value.toFixed(3));

/** One line of the lesson, with the numbers of this model. */
function formula(
  { entry, map, words }: Panel,
  scores: Scores,
  term: Term,
  largest: number,
  total: number,
): HTMLElement {
  const weight = Math.exp(term.score - largest) / total;
  const parts = [
    `q·k = Σ qᵢkᵢ = ${short(term.sum)}`,
    `${short(term.sum)} × ${scores.scale.toPrecision(4)} = ${short(term.sum * scores.scale)}`,
    scores.cap !== null && `${scores.cap} · tanh(… / ${scores.cap}) = ${short(term.scaled)}`,
    scores.bias && `${short(term.scaled)} + ${short(term.bias)} = ${short(term.score)}`,
    `exp(${short(term.score)}) / Σ exp = ${weight.toFixed(5)}`,
  ];
  return h(
    "p",
    { className: "formula" },
    `${words.formulaFor} `,
    tokenElement(entry.tokens[map.columns][term.column]),
    ": ",
    h("code", {}, parts.filter(Boolean).join(";  ")),
  );
}

function table(
  panel: Panel,
  scores: Scores,
  row: number,
  terms: Term[],
  largest: number,
  total: number,
): HTMLElement {
  const { entry, map, head, words, set, state, store } = panel;
  const shownPart = (states: Float32Array, token: number) => {
    const values = part(states, token, scores.size);
    return state.before ? unturned(values, scores, token) : values;
  };
  const query = shownPart(scores.query[head], row);
  const keys = terms.map((term) => shownPart(scores.key[head], term.column));
  const products = terms.map((term, i) =>
    state.before ? query.map((value, j) => value * keys[i][j]) : term.products,
  );
  const most = (all: Float32Array[]) => Math.max(...all.map((one) => Math.max(...one.map(Math.abs))));
  const largestState = most([query, ...keys]);
  const largestProduct = most(products);
  const titles = ["k", "q × k", words.sum, words.scale, words.bias, words.softmax];
  const columns = titles.filter((title) => title !== words.bias || scores.bias);
  return h(
    "div",
    { className: "neurons" },
    h("div", { className: "query" }, "q ", tokenElement(entry.tokens[map.rows][row]), " ", strip(query, largestState)),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", {}, words.token), ...columns.map((title) => h("th", {}, title)))),
      h(
        "tbody",
        {},
        ...terms.map((term, i) =>
          h(
            "tr",
            {
              className: term.column === state.column ? "chosen" : "",
              onclick: () => set({ row, column: term.column }),
            },
            h("th", { scope: "row" }, tokenElement(entry.tokens[map.columns][term.column])),
            h("td", {}, strip(keys[i], largestState)),
            h("td", {}, strip(products[i], largestProduct)),
            h("td", {}, short(term.sum)),
            h("td", {}, short(term.scaled)),
            scores.bias && h("td", {}, short(term.bias)),
            h(
              "td",
              {
                className: "weight",
                style: { "--strength": String(Math.exp(term.score - largest) / total) },
              },
              format(Math.exp(term.score - largest) / total, store.payload.rounding),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A vector as a strip of colours. */
function strip(values: Float32Array, largest: number): HTMLElement {
  const canvas = h("canvas", {
    role: "img",
    "aria-label": [...values.slice(0, 8)].map((value) => value.toFixed(2)).join(" "),
    title: [...values].map((value, i) => `${i}: ${value.toFixed(4)}`).join("\n"),
  });
  const width = Math.max(1, Math.min(6, Math.floor(256 / values.length)));
  const context = sharpen(canvas, width * values.length, HEIGHT);
  values.forEach((value, i) => {
    context.fillStyle = signColor(value, largest);
    context.fillRect(i * width, 0, width, HEIGHT);
  });
  return canvas;
}
