// What is shown. One object, changed in one place; views are drawn anew from it.

import type { Entry, MapAbout, Payload } from "./data.ts";

export const VIEWS = ["lines", "grid", "map", "neurons", "time"] as const;
export type View = (typeof VIEWS)[number];

export interface State {
  view: View;
  entry: number;
  beside: number | null; // a second entry, next to the first
  kind: string;
  layer: number;
  head: number;
  hidden: ReadonlySet<number>; // heads without lines
  row: number | null; // pinned
  column: number | null;
  step: number; // of what the model wrote
  sort: string; // a measure, or "" for the order of layers
  least: number; // of the range of that measure
  zoom: number; // cells of a map, in pixels; 0: as they fit
  before: boolean; // rotation
}

export function initial(payload: Payload): State {
  const maps = payload.entries[0].maps;
  return {
    view: "lines",
    entry: 0,
    beside: null,
    kind: (maps.find((map) => map.kind === "cross") ?? maps[0]).kind,
    layer: 0,
    head: 0,
    hidden: new Set(),
    row: null,
    column: null,
    step: 0,
    sort: "",
    least: 0,
    zoom: 0,
    before: false,
  };
}

/** The map of an entry that is meant; one that it has, where it lacks that kind. */
export function mapOf(entry: Entry, kind: string): MapAbout {
  return entry.maps.find((map) => map.kind === kind) ?? entry.maps[0];
}

/** The same state, where numbers stay within what the first entry has. */
export function within(state: State, payload: Payload): State {
  const entry = payload.entries[state.entry];
  const map = mapOf(entry, state.kind);
  const clip = (value: number, count: number) => Math.min(Math.max(value, 0), count - 1);
  const place = (value: number | null, side: string) =>
    value !== null && value < entry.tokens[side].length && value >= 0 ? value : null;
  return {
    ...state,
    kind: map.kind,
    layer: clip(state.layer, map.layers),
    head: clip(state.head, map.heads),
    row: place(state.row, map.rows),
    column: place(state.column, map.columns),
    step: clip(state.step, Math.max(steps(entry), 1)),
    view: state.view === "time" && !steps(entry) ? "lines" : state.view,
  };
}

/** How many tokens the model wrote itself. */
export function steps(entry: Entry): number {
  if (entry.writtenFrom === null) return 0;
  return (entry.tokens.target ?? entry.tokens.source).length - entry.writtenFrom;
}

/** What a key changes; null where it changes nothing. */
export function pressed(key: string, state: State): Partial<State> | null {
  const number = Number(key);
  if (number >= 1 && number <= VIEWS.length) return { view: VIEWS[number - 1] };
  switch (key) {
    case "ArrowRight":
      return state.view === "time" ? { step: state.step + 1 } : { layer: state.layer + 1 };
    case "ArrowLeft":
      return state.view === "time" ? { step: state.step - 1 } : { layer: state.layer - 1 };
    case "ArrowDown":
      return { head: state.head + 1 };
    case "ArrowUp":
      return { head: state.head - 1 };
    case "Escape":
      return { row: null, column: null };
    default:
      return null;
  }
}
