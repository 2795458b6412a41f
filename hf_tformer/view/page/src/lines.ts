// Tokens left and right, a line for each weight. Only the lines of tokens in sight are drawn.

import { headColor } from "./color.ts";
import type { Head } from "./data.ts";
import { format } from "./data.ts";
import { h, renew, sharpen, tokenElement, tokenLabel } from "./dom.ts";
import type { Panel } from "./panel.ts";
import { headsOf, shownHeads } from "./panel.ts";

const HEIGHT = 22; // of a token
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
  const shown = shownHeads(panel);
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

  const canvas = h("canvas", { "aria-hidden": "true" });
  const between = h("div", { className: "between" }, canvas);
  const sides = {
    row: rows.map((token, i) => element(token, { side: "row", index: i })),
    column: columns.map((token, i) => element(token, { side: "column", index: i })),
  };
  const scroller = h(
    "div",
    { className: "lines" },
    h("div", { className: "side left" }, ...sides.row),
    between,
    h("div", { className: "side right" }, ...sides.column),
  );
  renew(host, h("p", { className: "hint" }, words.linesHint), chips(panel), scroller);
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
    const first = Math.floor(scroller.scrollTop / HEIGHT);
    const last = first + Math.ceil(height / HEIGHT);
    const middle = (index: number) => (index + 0.5) * HEIGHT - scroller.scrollTop;
    const opposite = focus ? strongest(heads, focus) : [];
    heads.forEach((head, i) => {
      context.strokeStyle = headColor(shown[i], map.heads);
      eachPair(focus, head, [first, last], (row, column, weight) => {
        if (weight < FAINT) return;
        context.globalAlpha = Math.min(weight, 1);
        context.lineWidth = 2;
        context.beginPath();
        context.moveTo(0, middle(row));
        context.lineTo(gap, middle(column));
        context.stroke();
      });
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

/** The weights of the focus; without one, those of which an end is in sight. */
function eachPair(
  focus: Place | null,
  head: Head,
  [first, last]: [number, number],
  see: (row: number, column: number, weight: number) => void,
) {
  if (focus?.side === "row") {
    head.row(focus.index).forEach((weight, column) => see(focus.index, column, weight));
  } else if (focus) {
    for (let row = 0; row < head.rows; row++) see(row, focus.index, head.at(row, focus.index));
  } else {
    for (let row = 0; row < head.rows; row++) {
      const isSeen = row >= first && row <= last;
      const end = isSeen ? head.columns : Math.min(last + 1, head.columns);
      for (let column = isSeen ? 0 : first; column < end; column++) {
        see(row, column, head.at(row, column));
      }
    }
  }
}

/** The heads, to show and to hide. */
export function chips({ map, state, words, set }: Panel): HTMLElement {
  const all = [...Array(map.heads).keys()];
  const toggled = (head: number) => {
    const hidden = new Set(state.hidden);
    if (!hidden.delete(head)) hidden.add(head);
    return hidden;
  };
  return h(
    "div",
    { className: "chips", role: "group", "aria-label": words.heads },
    h("span", {}, words.heads),
    ...all.map((head) =>
      h(
        "button",
        {
          className: "chip",
          "aria-pressed": String(!state.hidden.has(head)),
          style: { "--color": headColor(head, map.heads) },
          onclick: () => set({ hidden: toggled(head) }),
        },
        head,
      ),
    ),
    h("button", { onclick: () => set({ hidden: new Set() }) }, words.allHeads),
    h("button", { onclick: () => set({ hidden: new Set(all) }) }, words.noHeads),
  );
}
