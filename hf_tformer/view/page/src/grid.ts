// All heads of all layers, small. Measures sort them and put those in the shade that have less.

import { paintWeights } from "./color.ts";
import { split } from "./data.ts";
import { h, renew, select, slider } from "./dom.ts";
import type { Panel } from "./panel.ts";
import type { Words } from "./words.ts";
import { MEASURES } from "./words.ts";

interface Cell {
  layer: number;
  head: number;
  value: number | null; // of the measure that sorts
}

export async function drawGrid(panel: Panel): Promise<void> {
  const { host, map, words, state, set, store } = panel;
  const values = map.measures[state.sort];
  const pictures = await Promise.all(
    [...Array(map.layers).keys()].map((layer) => store.thumbnails(map, layer)),
  );
  if (!panel.isCurrent()) return;
  const cells = order(map.layers, map.heads, values);
  const range = values ? [Math.min(...values.flat()), Math.max(...values.flat())] : [0, 1];
  const least = range[0] + state.least * (range[1] - range[0]);
  const shape = [panel.entry.tokens[map.rows].length, panel.entry.tokens[map.columns].length].map(
    (length) => Math.min(length, 32),
  );
  const grid = h("div", {
    className: values ? "grid sorted" : "grid",
    style: { "--heads": String(map.heads) },
  });
  for (const { layer, head, value } of cells) {
    grid.append(
      h(
        "button",
        {
          className: value !== null && value < least ? "cell shaded" : "cell",
          "aria-label": described(panel, layer, head),
          title: described(panel, layer, head),
          onclick: () => set({ view: "map", layer, head }),
        },
        picture(pictures[layer][head], shape),
        h("span", {}, `${layer}·${head}${value === null ? "" : `  ${value.toFixed(2)}`}`),
      ),
    );
  }
  renew(host, h("p", { className: "hint" }, state.sort ? words.sortedHint : words.gridHint), controls(panel, least), grid);

  function picture(values: Float32Array, [rows, columns]: number[]): HTMLCanvasElement {
    const canvas = h("canvas", { width: columns, height: rows });
    paintWeights(canvas, split(values, rows));
    return canvas;
  }
}

/** Row by row, or the largest of a measure first. */
export function order(layers: number, heads: number, values?: number[][]): Cell[] {
  const cells: Cell[] = [];
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      cells.push({ layer, head, value: values ? values[layer][head] : null });
    }
  }
  return values ? cells.sort((a, b) => (b.value as number) - (a.value as number)) : cells;
}

export function described({ map, words }: Panel, layer: number, head: number): string {
  const measured = MEASURES.filter((name) => map.measures[name]).map(
    (name) => `${words[name]} ${map.measures[name][layer][head].toFixed(2)}${name === "induction" ? ` (${words.repeats} ${map.repeats})` : ""}`,
  );
  return `${words.layer} ${layer}${words.comma}${words.head} ${head}${words.colon}${measured.join(words.comma)}`;
}

function controls({ map, words, state, set }: Panel, least: number): HTMLElement {
  const names = MEASURES.filter((name) => map.measures[name]);
  const options: [string, string][] = names.map((name) => [name, words[name]]);
  const why = words[`${state.sort}Why` as keyof Words];
  return h(
    "div",
    { className: "controls" },
    select(words.sort, [["", words.byLayer], ...options], state.sort, (sort) =>
      set({ sort, least: 0 }),
    ),
    state.sort &&
      slider(words.least, [0, 1, 0.01], state.least, least.toFixed(2), (value) =>
        set({ least: value }),
      ),
    why ? h("span", { className: "hint" }, why) : null,
  );
}
