// What the page was written with, and the numbers in it, unpacked when they are asked for.
// The other end is hf_tformer/view/page.py and packing.py.

export interface Rounding {
  name: "linear" | "root" | "coarse";
  bits: 8 | 16;
  error: number; // of any weight, at most
}

export interface ScoresAbout {
  size: number; // of a head
  scale: number;
  cap: number | null;
  hasBias: boolean;
  turned: number; // how many sizes of a head are turned by their position; 0: none
}

export interface MapAbout {
  kind: "encoder" | "decoder" | "cross";
  rows: string; // the side whose tokens look
  columns: string;
  layers: number;
  heads: number;
  chunks: string; // the end of the names of its script elements
  thumbnails: string[]; // of each layer
  measures: Record<string, number[][]>; // name → [layer][head]
  repeats: number; // tokens that the measure of induction counts
  scores: (ScoresAbout | null)[];
}

/** The most probable next tokens, and the others in groups: [logit, count]. */
export interface NextTokens {
  tokens: string[];
  logits: number[];
  others: [number, number][];
}

export interface Entry {
  title: string;
  tokens: Record<string, string[]>;
  writtenFrom: number | null;
  writtenBy: NextTokens[]; // for each token that was written, if the model told it
  maps: MapAbout[];
}

export interface Payload {
  rounding: Rounding;
  scoresLeftOut: boolean;
  entries: Entry[];
}

/** The weights of one head. */
export class Head {
  constructor(
    readonly rows: number,
    readonly columns: number,
    readonly values: Float32Array,
  ) {}

  at(row: number, column: number): number {
    return this.values[row * this.columns + column];
  }

  row(row: number): Float32Array {
    return this.values.subarray(row * this.columns, (row + 1) * this.columns);
  }
}

/** What the weights of one layer come from; of each head one part. */
export interface Scores extends ScoresAbout {
  hidden: Uint8Array; // [rows × columns]: 1 where a row does not see a column
  query: Float32Array[]; // [rows × size]
  key: Float32Array[]; // [columns × size]
  bias: Float32Array[] | null; // [rows × columns]
  cos: Float32Array | null; // [tokens × turned]
  sin: Float32Array | null;
}

export async function unpack(text: string): Promise<ArrayBuffer> {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** A loop: Float32Array.from with a function takes many times as long, for a million weights. */
export function decode(buffer: ArrayBuffer, rounding: Rounding): Float32Array {
  const isLinear = rounding.bits === 16;
  const codes = isLinear ? new Uint16Array(buffer) : new Uint8Array(buffer);
  const values = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) {
    values[i] = isLinear ? codes[i] / 65535 : (codes[i] / 255) ** 2;
  }
  return values;
}

/** As many digits as are known. */
export function format(weight: number, rounding: Rounding): string {
  return weight.toFixed(rounding.error < 1e-4 ? 5 : 3);
}

export function split(values: Float32Array, parts: number): Float32Array[] {
  const size = values.length / parts;
  return Array.from({ length: parts }, (_, i) => values.subarray(i * size, (i + 1) * size));
}

const KEPT = 64; // heads that stay unpacked

export class Store {
  private heads = new Map<string, Promise<Head>>();

  constructor(
    readonly payload: Payload,
    private readonly textOf: (name: string) => string | null,
  ) {}

  head(entry: Entry, map: MapAbout, layer: number, head: number): Promise<Head> {
    const name = `weights-${map.chunks}-${layer}`;
    const key = `${name}-${head}`;
    const found = this.heads.get(key) ?? this.read(name, head, entry, map);
    this.heads.delete(key); // and in again, as the newest
    this.heads.set(key, found);
    if (this.heads.size > KEPT) this.heads.delete(this.heads.keys().next().value as string);
    return found;
  }

  private async read(name: string, head: number, entry: Entry, map: MapAbout): Promise<Head> {
    const values = decode(await unpack(this.line(name, head)), this.payload.rounding);
    return new Head(entry.tokens[map.rows].length, entry.tokens[map.columns].length, values);
  }

  /** The mean of several heads of a layer. */
  async mean(entry: Entry, map: MapAbout, layer: number, heads: number[]): Promise<Head> {
    const all = await Promise.all(heads.map((head) => this.head(entry, map, layer, head)));
    const sum = new Float32Array(all[0].values.length);
    for (const { values } of all) for (let i = 0; i < sum.length; i++) sum[i] += values[i];
    return new Head(all[0].rows, all[0].columns, sum.map((value) => value / all.length));
  }

  /** [heads] of rows × columns: the largest weight of each part, for a picture. */
  async thumbnails(map: MapAbout, layer: number): Promise<Float32Array[]> {
    const small: Rounding = { name: "root", bits: 8, error: 1 };
    return split(decode(await unpack(map.thumbnails[layer]), small), map.heads);
  }

  async scores(map: MapAbout, layer: number): Promise<Scores | null> {
    const about = map.scores[layer];
    if (!about) return null;
    const floats = async (line: number) =>
      new Float32Array(await unpack(this.line(`scores-${map.chunks}-${layer}`, line)));
    const after = about.hasBias ? 4 : 3;
    return {
      ...about,
      hidden: new Uint8Array(await unpack(this.line(`scores-${map.chunks}-${layer}`, 0))),
      query: split(await floats(1), map.heads),
      key: split(await floats(2), map.heads),
      bias: about.hasBias ? split(await floats(3), map.heads) : null,
      cos: about.turned ? await floats(after) : null,
      sin: about.turned ? await floats(after + 1) : null,
    };
  }

  private line(name: string, number: number): string {
    const text = this.textOf(name);
    if (text === null) throw new Error(`the page holds no ${name}`);
    return text.split("\n")[number];
  }
}
