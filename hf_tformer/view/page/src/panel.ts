// What every view is given: what to show, where it comes from, and how to ask for another state.

import type { Entry, Head, MapAbout, Store } from "./data.ts";
import type { State } from "./state.ts";
import type { Words } from "./words.ts";

export interface Panel {
  host: HTMLElement;
  store: Store;
  entry: Entry;
  map: MapAbout;
  layer: number;
  head: number;
  state: State;
  words: Words;
  set(change: Partial<State>): void;
  say(text: string): void; // in the line that is read aloud
  isCurrent(): boolean; // false where a later state is being drawn
}

/** Numbers of the heads that are shown: those that were chosen, or else `otherwise`. */
export function shownHeads({ map, state }: Panel, otherwise: number[]): number[] {
  return state.heads ? allHeads(map).filter((head) => state.heads?.has(head)) : otherwise;
}

export function allHeads(map: MapAbout): number[] {
  return [...Array(map.heads).keys()];
}

export function headsOf(panel: Panel, heads: number[]): Promise<Head[]> {
  const { store, entry, map, layer } = panel;
  return Promise.all(heads.map((head) => store.head(entry, map, layer, head)));
}
