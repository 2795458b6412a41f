// The formula of attention for one query token, with the numbers of the model.

import type { Scores } from "./data.ts";

export interface Term {
  column: number;
  products: Float32Array; // q_i · k_i
  sum: number;
  scaled: number; // after the scale and, where there is one, the cap
  bias: number;
  score: number;
}

export function part(values: Float32Array, token: number, size: number): Float32Array {
  return values.subarray(token * size, (token + 1) * size);
}

export function termOf(scores: Scores, head: number, row: number, column: number): Term {
  const query = part(scores.query[head], row, scores.size);
  const key = part(scores.key[head], column, scores.size);
  const products = query.map((value, i) => value * key[i]);
  const sum = products.reduce((a, b) => a + b, 0);
  let scaled = sum * scores.scale;
  if (scores.cap !== null) scaled = Math.tanh(scaled / scores.cap) * scores.cap;
  const columns = scores.key[head].length / scores.size;
  const bias = scores.bias ? scores.bias[head][row * columns + column] : 0;
  return { column, products, sum, scaled, bias, score: scaled + bias };
}

/** The terms of the columns that a row sees, and its softmax over them. */
export function explain(
  scores: Scores,
  head: number,
  row: number,
): { terms: Term[]; largest: number; total: number } {
  const columns = scores.key[head].length / scores.size;
  const all = [...Array(columns).keys()];
  const seen = all.filter((column) => !scores.hidden[row * columns + column]);
  const terms = seen.map((column) => termOf(scores, head, row, column));
  const largest = Math.max(...terms.map((term) => term.score));
  const total = terms.reduce((sum, term) => sum + Math.exp(term.score - largest), 0);
  return { terms, largest, total };
}

/** A query or key before its pairs (i, i + half) were turned by the angles of its place. */
export function unturned(values: Float32Array, scores: Scores, token: number): Float32Array {
  const { turned, cos, sin } = scores;
  if (!cos || !sin) return values;
  const half = turned / 2;
  const before = Float32Array.from(values);
  for (let i = 0; i < half; i++) {
    const [c, s] = [cos[token * turned + i], sin[token * turned + i]];
    const norm = c * c + s * s; // more than 1 where a scaling stretches, too
    before[i] = (values[i] * c + values[i + half] * s) / norm;
    before[i + half] = (values[i + half] * c - values[i] * s) / norm;
  }
  return before;
}
