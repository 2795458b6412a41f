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

  /** The three largest weights of a token, in words. */
  function spoken({ side, index }: Place): string {
    const [own, others] = side === "row" ? [rows, columns] : [columns, rows];
    const means = others.map((_, other) => {
      const at = (head: Head) => (side === "row" ? head.at(index, other) : head.at(other, index));
      return heads.reduce((sum, head) => sum + at(head), 0) / Math.max(heads.length, 1);
    });
    const best = [...means.keys()].sort((a, b) => means[b] - means[a]).slice(0, 3);
    const named = best.map(
      (i) => `${tokenLabel(others[i])} ${format(means[i], panel.store.payload.rounding)}`,
    );
    return `${tokenLabel(own[index])} ${side === "row" ? "→" : "←"} ${named.join(", ")}`;
  }

  function paint() {
    const height = scroller.clientHeight;
    const gap = between.clientWidth;
    const context = sharpen(canvas, gap, height);
    const focus = pointed ?? pinned;
    const first = Math.floor(scroller.scrollTop / HEIGHT);
    const last = first + Math.ceil(height / HEIGHT);
    const middle = (index: number) => (index + 0.5) * HEIGHT - scroller.scrollTop;
    const opposite = new Map<number, number>(); // what the focus is joined to, and how strongly
    heads.forEach((head, i) => {
      context.strokeStyle = headColor(shown[i], map.heads);
      eachPair(focus, head, [first, last], (row, column, weight) => {
        if (focus) {
          const other = focus.side === "row" ? column : row;
          opposite.set(other, Math.max(opposite.get(other) ?? 0, weight));
        }
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
          !focus ? 0 : side === focus.side ? Number(i === focus.index) : (opposite.get(i) ?? 0);
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
