// What each written token was written from: a row of the maps, step by step.

import type { Entry, NextTokens } from "./data.ts";
import { format } from "./data.ts";
import { h, renew, slider, tokenElement } from "./dom.ts";
import { chips } from "./lines.ts";
import type { Panel } from "./panel.ts";
import { allHeads, shownHeads } from "./panel.ts";
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
        const heads = shownHeads({ ...panel, map }, allHeads(map));
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
    chips(panel, allHeads(panel.map)),
    h(
      "div",
      { className: "controls" },
      h("button", { onclick: play }, player === entry ? words.stop : words.play),
      slider(words.step, [0, count - 1, 1], state.step, `${state.step + 1} / ${count}`, move),
      h("span", { className: "written" }, `${words.writes} `, tokenElement(entry.tokens[own][written])),
    ),
    candidates(panel, written - from),
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

/** The probabilities of the named tokens at a temperature. */
export function probabilities({ logits, others }: NextTokens, temperature: number): number[] {
  const powers = logits.map((logit) => Math.exp((logit - logits[0]) / temperature));
  const rest = others.map(([logit, count]) => count * Math.exp((logit - logits[0]) / temperature));
  const total = [...powers, ...rest].reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

/** What else the model could have written here, as bars. */
function candidates({ entry, state, words, set }: Panel, step: number): HTMLElement | null {
  const next = entry.writtenBy[step];
  if (!next) return null;
  const shares = probabilities(next, state.temperature);
  const chosen = entry.tokens.target ?? entry.tokens.source;
  const written = chosen[(entry.writtenFrom as number) + step];
  return h(
    "section",
    { className: "candidates" },
    h("h3", {}, words.candidates),
    slider(words.temperature, [0.1, 2, 0.1], state.temperature, state.temperature.toFixed(1), (temperature) =>
      set({ temperature }),
    ),
    h(
      "ol",
      {},
      ...next.tokens.map((token, i) =>
        h(
          "li",
          { className: token === written ? "taken" : "", style: { "--share": shares[i].toFixed(4) } },
          tokenElement(token),
          h("span", { className: "share" }),
          h("output", {}, `${(100 * shares[i]).toFixed(1)} %`),
        ),
      ),
    ),
  );
}
