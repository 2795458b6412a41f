// Tokens left and right, a line for each weight. Only the lines of tokens in sight are drawn.

import { headColor, isDark } from "./color.ts";
import type { Head } from "./data.ts";
import { format } from "./data.ts";
import { h, renew, sharpen, tokenElement, tokenLabel } from "./dom.ts";
import type { Panel } from "./panel.ts";
import { allHeads, headsOf, shownHeads } from "./panel.ts";
import { described } from "./grid.ts";
import { telling } from "./telling.ts";
import type { Words } from "./words.ts";

const HEIGHTS = [22, 40]; // of a token: a short text takes the room that there is
const FAINT = 0.02; // lines below it are not seen, and not drawn

interface Place {
  side: "row" | "column";
  index: number;
}

/** For each token opposite to a place: its largest weight in these heads, which is how dark the
 *  token is drawn, and the number of that head among them. */
export function strongest(heads: Head[], { side, index }: Place): { weight: number; head: number }[] {
  const count = !heads.length ? 0 : side === "row" ? heads[0].columns : heads[0].rows;
  return [...Array(count).keys()].map((other) => {
    const weights = heads.map((head) => (side === "row" ? head.at(index, other) : head.at(other, index)));
    const weight = Math.max(...weights);
    return { weight, head: weights.indexOf(weight) };
  });
}

export async function drawLines(panel: Panel): Promise<void> {
  const { host, entry, map, words, state, say, set } = panel;
  const shown = shownHeads(panel, [panel.head]);
  const heads = await headsOf(panel, shown);
  if (!panel.isCurrent()) return;
  const rows = entry.tokens[map.rows];
  const columns = entry.tokens[map.columns];
  const pinned: Place | null =
    state.row !== null
      ? { side: "row", index: state.row }
      : state.column !== null
        ? { side: "column", index: state.column }
        : null;
  let pointed: Place | null = null;
  const room = (window.innerHeight * 0.62) / Math.max(rows.length, columns.length);
  const tall = Math.min(Math.max(Math.floor(room), HEIGHTS[0]), HEIGHTS[1]);

  const canvas = h("canvas", { "aria-hidden": "true" });
  const between = h("div", { className: "between" }, canvas);
  const sides = {
    row: rows.map((token, i) => element(token, { side: "row", index: i })),
    column: columns.map((token, i) => element(token, { side: "column", index: i })),
  };
  const scroller = h(
    "div",
    { className: "lines", style: { "--tall": `${tall}px` } },
    h("div", { className: "side left" }, ...sides.row),
    between,
    h("div", { className: "side right" }, ...sides.column),
  );
  renew(host, h("p", { className: "hint" }, words.linesHint), chips(panel, [panel.head]), about(panel), scroller);
  scroller.addEventListener("scroll", paint);
  paint();
  if (pinned) say(spoken(pinned));

  function element(token: string, place: Place): HTMLElement {
    const isPinned = pinned?.side === place.side && pinned.index === place.index;
    return h(
      "button",
      {
        className: "token",
        "aria-pressed": String(isPinned),
        onmouseenter: () => point(place),
        onfocus: () => point(place),
        onmouseleave: () => point(null),
        onclick: () => {
          const other = place.side === "row" ? "column" : "row";
          set({ [place.side]: isPinned ? null : place.index, [other]: null });
        },
      },
      tokenElement(token),
    );
  }

  function point(place: Place | null) {
    pointed = place;
    if (place) say(spoken(place));
    paint();
  }

  /** The three darkest tokens opposite to a token, in words: weights, and heads if several are shown. */
  function spoken(place: Place): string {
    const [own, others] = place.side === "row" ? [rows, columns] : [columns, rows];
    const found = strongest(heads, place);
    const best = [...found.keys()].sort((a, b) => found[b].weight - found[a].weight).slice(0, 3);
    const named = best.map((i) => {
      const { weight, head } = found[i];
      const its = heads.length > 1 ? ` (${words.head.toLowerCase()} ${shown[head]})` : "";
      return `${tokenLabel(others[i])} ${format(weight, panel.store.payload.rounding)}${its}`;
    });
    return `${tokenLabel(own[place.index])} ${place.side === "row" ? "→" : "←"} ${named.join(", ")}`;
  }

  function paint() {
    const height = scroller.clientHeight;
    const gap = between.clientWidth;
    const context = sharpen(canvas, gap, height);
    const focus = pointed ?? pinned;
    const first = Math.floor(scroller.scrollTop / tall);
    const last = first + Math.ceil(height / tall);
    const middle = (index: number) => (index + 0.5) * tall - scroller.scrollTop;
    const opposite = focus ? strongest(heads, focus) : [];
    const colors = shown.map((head) => headColor(head, map.heads, isDark()));
    eachPair(focus, heads, [first, last], (row, column, weight, number) => {
      if (weight < FAINT) return;
      context.strokeStyle = colors[number];
      context.globalAlpha = Math.min(Math.sqrt(weight), 1);
      context.lineWidth = 1 + 3 * Math.min(weight, 1);
      context.beginPath();
      context.moveTo(0, middle(row));
      context.lineTo(gap, middle(column));
      context.stroke();
    });
    for (const side of ["row", "column"] as const) {
      sides[side].forEach((token, i) => {
        const strength =
          !focus ? 0 : side === focus.side ? Number(i === focus.index) : (opposite[i]?.weight ?? 0);
        token.style.setProperty("--strength", strength.toFixed(3));
      });
    }
  }
}

/** The weights of the focus; without one, those of which an end is in sight. Of a pair that several
 *  heads see, the largest weight, and the number of that head among them. */
function eachPair(
  focus: Place | null,
  heads: Head[],
  [first, last]: [number, number],
  see: (row: number, column: number, weight: number, number: number) => void,
) {
  if (!heads.length) return;
  const { rows, columns } = heads[0];
  const pair = (row: number, column: number) => {
    let number = 0;
    for (let i = 1; i < heads.length; i++) {
      if (heads[i].at(row, column) > heads[number].at(row, column)) number = i;
    }
    see(row, column, heads[number].at(row, column), number);
  };
  if (focus?.side === "row") {
    for (let column = 0; column < columns; column++) pair(focus.index, column);
  } else if (focus) {
    for (let row = 0; row < rows; row++) pair(row, focus.index);
  } else {
    for (let row = 0; row < rows; row++) {
      const isSeen = row >= first && row <= last;
      const end = isSeen ? columns : Math.min(last + 1, columns);
      for (let column = isSeen ? 0 : first; column < end; column++) pair(row, column);
    }
  }
}

/** What the shown head does, in numbers; of the one that the page chose, why. */
function about(panel: Panel): HTMLElement {
  const { map, state, words, layer, head } = panel;
  if (state.heads) return h("p", { className: "hint" }, words.several);
  const chosen = telling(map);
  const isChosen = chosen.layer === layer && chosen.head === head && chosen.rule;
  const why = isChosen ? ` ${words.chosen}${words[`${chosen.rule}Why` as keyof Words]}${words.period}` : "";
  return h("p", { className: "about" }, `${described(panel, layer, head)}${words.period}${why}`);
}

/** The heads: a click shows one alone, or adds and removes it where several are shown. */
export function chips({ map, state, words, set }: Panel, otherwise: number[]): HTMLElement {
  const shown = state.heads ?? new Set(otherwise);
  const clicked = (head: number) => {
    if (!state.heads) return set({ head, heads: otherwise.length > 1 ? new Set([head]) : null });
    const heads = new Set(state.heads);
    if (!heads.delete(head)) heads.add(head);
    set({ head, heads });
  };
  return h(
    "div",
    { className: "chips", role: "group", "aria-label": words.heads },
    h("span", {}, words.heads),
    ...allHeads(map).map((head) =>
      h(
        "button",
        {
          className: "chip",
          "aria-pressed": String(shown.has(head)),
          style: { "--color": headColor(head, map.heads, isDark()) },
          onclick: () => clicked(head),
        },
        head,
      ),
    ),
    h("button", { onclick: () => set({ heads: new Set(allHeads(map)) }) }, words.allHeads),
    h("button", { onclick: () => set({ heads: null }) }, otherwise.length > 1 ? words.reset : words.oneHead),
  );
}
