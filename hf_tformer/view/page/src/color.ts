// Colours: one hue for each head, one scale for weights, two hues for signs.

export function headColor(head: number, heads: number): string {
  return `hsl(${Math.round((head * 360) / heads + 210) % 360} 70% 50%)`;
}

type Rgb = [number, number, number];
const SCALES: Record<"light" | "dark", Rgb[]> = {
  light: [[255, 255, 255], [158, 202, 225], [33, 113, 181], [8, 29, 88]],
  dark: [[24, 26, 31], [40, 70, 130], [70, 150, 220], [255, 244, 190]],
};

/** From nothing to one. The root lets small weights be seen. */
export function weightColor(weight: number, dark: boolean): Rgb {
  const scale = SCALES[dark ? "dark" : "light"];
  const place = Math.sqrt(Math.min(Math.max(weight, 0), 1)) * (scale.length - 1);
  const below = Math.min(Math.floor(place), scale.length - 2);
  return scale[below].map((low, i) =>
    Math.round(low + (scale[below + 1][i] - low) * (place - below)),
  ) as Rgb;
}

/** `weightColor` in steps, as a canvas holds colours: a map has a million weights. */
function shades(dark: boolean): Uint32Array {
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) bytes.set([...weightColor((i / 255) ** 2, dark), 255], i * 4);
  return new Uint32Array(bytes.buffer);
}

const SHADES = { light: shades(false), dark: shades(true) };

/** A pixel for each weight. */
export function paintWeights(canvas: HTMLCanvasElement, rows: Float32Array[]) {
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  const image = context.createImageData(rows[0].length, rows.length);
  const pixels = new Uint32Array(image.data.buffer);
  const colors = SHADES[isDark() ? "dark" : "light"];
  let i = 0;
  for (const row of rows) {
    for (const weight of row) pixels[i++] = colors[Math.round(Math.sqrt(Math.min(weight, 1)) * 255)];
  }
  context.putImageData(image, 0, 0);
}

/** Blue above nothing, orange below; `largest` is full. */
export function signColor(value: number, largest: number): string {
  const share = largest > 0 ? Math.min(Math.abs(value) / largest, 1) : 0;
  return `hsl(${value >= 0 ? 215 : 25} 85% 50% / ${share.toFixed(3)})`;
}

export function isDark(): boolean {
  return getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
}
