// One head as a matrix. The canvas is as large as the window on it; what is scrolled is drawn anew.

import { paintWeights } from "./color.ts";
import type { Head } from "./data.ts";
import { format } from "./data.ts";
import { h, renew, sharpen, slider, tokenElement, tokenLabel } from "./dom.ts";
import { described } from "./grid.ts";
import type { Panel } from "./panel.ts";

const MARGIN = 96; // for the labels
const READABLE = 12; // pixels of a cell from which labels stand beside it
const UPRIGHT = /^[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]+$/u; // written downwards as well
const TABLE = 60; // tokens: a larger table shows the pinned row alone

export async function drawMap(panel: Panel): Promise<void> {
  const { host, store, entry, map, layer, head, words, state, set, say } = panel;
  const matrix = await store.head(entry, map, layer, head);
  if (!panel.isCurrent()) return;
  const rows = entry.tokens[map.rows];
  const columns = entry.tokens[map.columns];
  const room = Math.min(host.clientWidth || 800, 1100) - MARGIN;
  const fitting = Math.max(1, Math.min(40, Math.floor(Math.min(room, 560) / columns.length)));
  const cell = state.zoom || fitting;
  const full = fullOf(matrix.values);
  const size = { width: columns.length * cell + MARGIN, height: rows.length * cell + MARGIN };

  const canvas = h("canvas", {});
  const tip = h("div", { className: "tip", hidden: true });
  const scroller = h(
    "div",
    {
      className: "map",
      "data-cell": cell,
      "data-margin": MARGIN,
      tabIndex: 0,
      role: "application",
      "aria-label": described(panel, layer, head),
      onpointermove: (event: PointerEvent) => point(placeOf(event), event),
      onpointerleave: () => point(null),
      onclick: (event: PointerEvent) => {
        const place = placeOf(event);
        if (place) set({ row: place[0], column: place[1] });
      },
      onkeydown: move,
    },
    h(
      "div",
      { style: { width: `${size.width}px`, height: `${size.height}px` } },
      h("div", { className: "window" }, canvas),
    ),
  );
  renew(
    host,
    h("p", { className: "hint" }, words.mapHint),
    h(
      "div",
      { className: "controls" },
      slider(words.zoom, [0, 40, 1], state.zoom, state.zoom ? `${cell} px` : words.fit, (zoom) =>
        set({ zoom }),
      ),
    ),
    bar(),
    scroller,
    tip,
    asTable(panel, matrix),
  );
  scroller.addEventListener("scroll", paint);
  paint();
  if (state.row !== null && state.column !== null) say(spoken(state.row, state.column));

  /** The colours of weights, with numbers at a quarter of the way each: they go by the root. */
  function bar(): HTMLElement {
    const colors = h("canvas", { width: 128, height: 1, "aria-hidden": "true" });
    const shades = Float32Array.from({ length: 128 }, (_, i) => full * (i / 127) ** 2);
    paintWeights(colors, [shades], full);
    const ends = [0, full / 4, full].map((value) => h("span", {}, String(Number(value.toPrecision(2)))));
    return h("div", { className: "scale", title: words.scaleOf }, colors, h("div", {}, ...ends));
  }

  function placeOf(event: PointerEvent): [number, number] | null {
    const box = scroller.getBoundingClientRect();
    const x = event.clientX - box.left - scroller.clientLeft - MARGIN;
    const y = event.clientY - box.top - scroller.clientTop - MARGIN;
    const row = Math.floor((y + scroller.scrollTop) / cell);
    const column = Math.floor((x + scroller.scrollLeft) / cell);
    const isInside = x >= 0 && y >= 0 && row < rows.length && column < columns.length;
    return isInside ? [row, column] : null;
  }

  function spoken(row: number, column: number): string {
    const weight = format(matrix.at(row, column), store.payload.rounding);
    return `${tokenLabel(rows[row])} → ${tokenLabel(columns[column])}: ${weight}`;
  }

  function point(place: [number, number] | null, event?: PointerEvent) {
    tip.hidden = place === null;
    if (!place || !event) return;
    tip.textContent = spoken(...place);
    tip.style.setProperty("left", `${Math.min(event.clientX + 14, window.innerWidth - 260)}px`);
    tip.style.setProperty("top", `${event.clientY + 14}px`);
  }

  function move(event: KeyboardEvent) {
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation(); // or the layer would change, too
    const clip = (value: number, count: number) => Math.min(Math.max(value, 0), count - 1);
    const isFirst = state.row === null || state.column === null;
    const row = isFirst ? 0 : clip((state.row as number) + step[0], rows.length);
    const column = isFirst ? 0 : clip((state.column as number) + step[1], columns.length);
    scroller.scrollTo(
      revealed(column, scroller.scrollLeft, scroller.clientWidth),
      revealed(row, scroller.scrollTop, scroller.clientHeight),
    );
    set({ row, column });
  }

  /** How far to scroll so that a cell is in sight; no farther than it takes. */
  function revealed(index: number, scrolled: number, length: number): number {
    return Math.min(Math.max(scrolled, (index + 1) * cell + MARGIN - length), index * cell);
  }

  function paint() {
    const width = Math.min(scroller.clientWidth, size.width);
    const height = Math.min(scroller.clientHeight, size.height);
    const context = sharpen(canvas, width, height);
    const left = scroller.scrollLeft;
    const top = scroller.scrollTop;
    const firstRow = Math.floor(top / cell);
    const lastRow = Math.min(rows.length, Math.ceil((top + height) / cell) + 1);
    const firstColumn = Math.floor(left / cell);
    const lastColumn = Math.min(columns.length, Math.ceil((left + width) / cell) + 1);
    const part = { width: lastColumn - firstColumn, height: lastRow - firstRow };
    const small = h("canvas", part); // a pixel for each cell
    const rowsInSight = Array.from({ length: part.height }, (_, i) => matrix.row(firstRow + i));
    paintWeights(small, rowsInSight.map((row) => row.subarray(firstColumn, lastColumn)), full);
    context.imageSmoothingEnabled = false;
    const [x, y] = [MARGIN + firstColumn * cell - left, MARGIN + firstRow * cell - top];
    context.drawImage(small, x, y, part.width * cell, part.height * cell);
    const colors = getComputedStyle(scroller);
    context.fillStyle = colors.backgroundColor;
    context.fillRect(0, 0, width, MARGIN);
    context.fillRect(0, 0, MARGIN, height);
    context.fillStyle = colors.color;
    context.font = `${Math.min(cell, 13)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const every = Math.ceil(READABLE / cell); // where there is no room for all
    for (let row = firstRow; row < lastRow; row += 1) {
      const y = MARGIN + (row + 0.5) * cell - top;
      if (row % every || y < MARGIN) continue;
      label(context, cell < READABLE ? String(row) : rows[row], MARGIN - 6, y, 0);
    }
    context.textAlign = "left";
    for (let column = firstColumn; column < lastColumn; column += 1) {
      const x = MARGIN + (column + 0.5) * cell - left;
      if (column % every || x < MARGIN) continue;
      label(context, cell < READABLE ? String(column) : columns[column], x, MARGIN - 6, -Math.PI / 2);
    }
    if (state.row !== null && state.column !== null) {
      context.strokeStyle = colors.getPropertyValue("--accent");
      context.lineWidth = 2;
      const [x, y] = [MARGIN + state.column * cell - left, MARGIN + state.row * cell - top];
      if (x >= MARGIN && y >= MARGIN) context.strokeRect(x, y, cell, cell);
    }
  }
}

function label(
  context: CanvasRenderingContext2D,
  token: string,
  x: number,
  y: number,
  angle: number,
) {
  context.save();
  context.translate(x, y);
  if (angle && UPRIGHT.test(token)) {
    const letters = [...tokenLabel(token, 6)];
    letters.forEach((letter, i) => context.fillText(letter, -6, (i - letters.length + 0.5) * 13));
  } else {
    context.rotate(angle);
    context.fillText(tokenLabel(token, 14), 0, 0, MARGIN - 10);
  }
  context.restore();
}

/** The weight with the full colour: the largest but for one in a hundred of those above nothing, since
 *  a few large ones would leave all others white. */
export function fullOf(values: Float32Array): number {
  const every = Math.ceil(values.length / 20000);
  const seen = values.filter((value, i) => i % every === 0 && value > 1e-4).sort();
  return seen.length < 100 ? 1 : Math.min(1, 2 * seen[Math.floor(seen.length * 0.99)]);
}

/** For who does not see the picture: all weights, or those of one row where there are many. */
function asTable(panel: Panel, matrix: Head): HTMLElement {
  const { entry, map, words, state, store } = panel;
  const rows = entry.tokens[map.rows];
  const columns = entry.tokens[map.columns];
  const shown =
    rows.length <= TABLE && columns.length <= TABLE ? [...rows.keys()] : [state.row ?? rows.length - 1];
  const open = panel.host.querySelector("details")?.open; // as it was
  const details = h("details", { className: "table", open }, h("summary", {}, words.table));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const head = h("tr", {}, h("th", { scope: "col" }, words.token));
    for (const token of columns) head.append(h("th", { scope: "col" }, tokenElement(token)));
    const body = shown.map((row) => {
      const line = h("tr", {}, h("th", { scope: "row" }, tokenElement(rows[row])));
      for (const weight of matrix.row(row)) {
        line.append(h("td", {}, format(weight, store.payload.rounding)));
      }
      return line;
    });
    details.append(h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
  });
  return details;
}
