// What each written token was written from: a row of the maps, step by step.

import type { Entry } from "./data.ts";
import { format } from "./data.ts";
import { h, renew, slider, tokenElement } from "./dom.ts";
import { chips } from "./lines.ts";
import type { Panel } from "./panel.ts";
import { shownHeads } from "./panel.ts";
import { steps } from "./state.ts";

const PACE = 700; // milliseconds

let player: Entry | null = null; // whose writing goes on by itself

export async function drawTime(panel: Panel): Promise<void> {
  const { host, entry, store, state, words, set, layer } = panel;
  const own = entry.tokens.target ? "target" : "source";
  const count = steps(entry);
  const from = entry.writtenFrom as number;
  const written = from + Math.min(state.step, count - 1);
  const row = written - 1; // the token that was there last looked, and wrote the next
  const texts = await Promise.all(
    entry.maps
      .filter((map) => map.rows === own)
      .map(async (map) => {
        const heads = shownHeads({ ...panel, map });
        if (!heads.length) return null;
        const mean = await store.mean(entry, map, Math.min(layer, map.layers - 1), heads);
        return { map, weights: mean.row(row) };
      }),
  );
  if (!panel.isCurrent()) return;
  const isLast = state.step >= count - 1;
  if (player === entry && isLast) player = null;
  const move = (step: number) => set({ step });
  renew(
    host,
    h("p", { className: "hint" }, words.timeHint),
    chips(panel),
    h(
      "div",
      { className: "controls" },
      h("button", { onclick: play }, player === entry ? words.stop : words.play),
      slider(words.step, [0, count - 1, 1], state.step, `${state.step + 1} / ${count}`, move),
      h("span", { className: "written" }, `${words.writes} `, tokenElement(entry.tokens[own][written])),
    ),
    ...texts.map((text) => {
      if (!text) return "";
      const tokens = entry.tokens[text.map.columns].slice(0, text.map.columns === own ? row + 1 : undefined);
      return h(
        "section",
        {},
        h("h3", {}, text.map.columns === own ? words.own : words.source),
        h(
          "p",
          { className: "read" },
          ...tokens.map((token, i) =>
            h(
              "span",
              {
                className: "weight",
                style: { "--strength": text.weights[i].toFixed(4) },
                "data-weight": format(text.weights[i], store.payload.rounding),
              },
              tokenElement(token),
              h("small", {}, format(text.weights[i], store.payload.rounding)),
            ),
          ),
        ),
      );
    }),
  );

  if (player === entry) window.setTimeout(goOn, PACE);

  function goOn() {
    if (panel.isCurrent() && player === entry) move(state.step + 1);
  }

  function play() {
    player = player === entry ? null : entry;
    set(isLast ? { step: 0 } : {});
  }
}
