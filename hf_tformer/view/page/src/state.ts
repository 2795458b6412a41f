// What is shown. One object, changed in one place; views are drawn anew from it.

import type { Entry, MapAbout, Payload } from "./data.ts";
import { telling } from "./telling.ts";

export const VIEWS = ["lines", "grid", "map", "neurons", "time"] as const;
export type View = (typeof VIEWS)[number];

export interface State {
  view: View;
  entry: number;
  beside: number | null; // a second entry, next to the first
  kind: string;
  layer: number;
  head: number;
  heads: ReadonlySet<number> | null; // several at once; null: the one of `head`
  row: number | null; // pinned
  column: number | null;
  step: number; // of what the model wrote
  temperature: number; // of the next token's probabilities
  sort: string; // a measure, or "" for the order of layers
  least: number; // of the range of that measure
  zoom: number; // cells of a map, in pixels; 0: as they fit
  before: boolean; // rotation
}

export function initial(payload: Payload): State {
  const maps = payload.entries[0].maps;
  const first = maps.find((map) => map.kind === "cross") ?? maps[0];
  const { layer, head } = telling(first);
  return {
    view: "lines",
    entry: 0,
    beside: null,
    kind: first.kind,
    layer,
    head,
    heads: null,
    row: null,
    column: null,
    step: 0,
    temperature: 1,
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

/** The entries that are shown. */
export function shownEntries({ entry, beside }: State, payload: Payload): Entry[] {
  return [entry, beside].filter((number) => number !== null).map((number) => payload.entries[number]);
}

/** The same state, where numbers stay within what one of the shown entries has. */
export function within(state: State, payload: Payload): State {
  const shown = shownEntries(state, payload);
  const { kind } = mapOf(shown[0], state.kind);
  const most = (count: (entry: Entry, map: MapAbout) => number) =>
    Math.max(...shown.map((entry) => count(entry, mapOf(entry, kind))));
  const clip = (value: number, count: number) => Math.min(Math.max(value, 0), count - 1);
  const place = (value: number | null, count: number) =>
    value !== null && value < count && value >= 0 ? value : null;
  return {
    ...state,
    kind,
    layer: clip(state.layer, most((_, map) => map.layers)),
    head: clip(state.head, most((_, map) => map.heads)),
    row: place(state.row, most(({ tokens }, map) => tokens[map.rows].length)),
    column: place(state.column, most(({ tokens }, map) => tokens[map.columns].length)),
    step: clip(state.step, Math.max(most(steps), 1)),
    view: state.view === "time" && !steps(shown[0]) ? "lines" : state.view,
  };
}

/** How many tokens the model wrote itself. */
export function steps(entry: Entry): number {
  if (entry.writtenFrom === null) return 0;
  return (entry.tokens.target ?? entry.tokens.source).length - entry.writtenFrom;
}

/** What a key changes; null where it changes nothing that is shown. */
export function pressed(key: string, state: State): Partial<State> | null {
  const number = Number(key);
  if (number >= 1 && number <= VIEWS.length) return { view: VIEWS[number - 1] };
  if (state.view === "grid" && key.startsWith("Arrow")) return null; // it shows all of them
  if (state.view === "time" && (key === "ArrowDown" || key === "ArrowUp")) return null;
  switch (key) {
    case "ArrowRight":
      return state.view === "time" ? { step: state.step + 1 } : { layer: state.layer + 1 };
    case "ArrowLeft":
      return state.view === "time" ? { step: state.step - 1 } : { layer: state.layer - 1 };
    case "ArrowDown":
      return { head: state.head + 1, heads: null };
    case "ArrowUp":
      return { head: state.head - 1, heads: null };
    case "Escape":
      return { row: null, column: null };
    default:
      return null;
  }
}
