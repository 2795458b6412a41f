// Which head is shown first, and why: one whose weights follow a rule that can be named.

import type { MapAbout } from "./data.ts";

const RULES = ["induction", "previous"] as const;
const FEWEST = 3; // tokens that repeat: fewer would make a rule of a coincidence

export interface Telling {
  layer: number;
  head: number;
  rule: string; // a measure
}

/** The head with the largest of these measures; without them, the one with the least entropy. */
export function telling(map: MapAbout): Telling {
  const rules = RULES.filter((rule) => map.measures[rule] && (rule !== "induction" || map.repeats >= FEWEST));
  const found = (rules.length ? rules : ["entropy"]).flatMap((rule) =>
    (map.measures[rule] ?? []).flatMap((layer, number) =>
      layer.map((value, head) => ({ layer: number, head, rule, value: rules.length ? value : -value })),
    ),
  );
  return found.reduce((best, one) => (one.value > best.value ? one : best), {
    layer: 0,
    head: 0,
    rule: "",
    value: Number.NEGATIVE_INFINITY,
  });
}
