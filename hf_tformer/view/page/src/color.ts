// Colours: one hue for each head, one scale for weights, two hues for signs.

type Rgb = [number, number, number];
const BACK: Record<"light" | "dark", Rgb> = { light: [255, 255, 255], dark: [24, 26, 31] };
const SEEN = 3.2; // contrast of a line with what is behind it, to 1

/** One hue for each head, as light or dark as a line needs to be seen. */
export function headColor(head: number, heads: number, dark: boolean): string {
  const hue = Math.round((head * 360) / heads + 210) % 360;
  let light = 50;
  const back = BACK[dark ? "dark" : "light"];
  while (contrast(fromHsl(hue, 0.7, light / 100), back) < SEEN) light += dark ? 2 : -2;
  return `hsl(${hue} 70% ${light}%)`;
}

function fromHsl(hue: number, saturation: number, light: number): Rgb {
  const reach = saturation * Math.min(light, 1 - light);
  const channel = (n: number) => {
    const place = (n + hue / 30) % 12;
    return 255 * (light - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1)));
  };
  return [channel(0), channel(8), channel(4)];
}

/** The contrast of two colours, as WCAG defines it: from 1 to 21. */
export function contrast(one: Rgb, other: Rgb): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

function luminance(color: Rgb): number {
  const [r, g, b] = color.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

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

/** A pixel for each weight; from `full` on the colour is that of one. */
export function paintWeights(canvas: HTMLCanvasElement, rows: Float32Array[], full = 1) {
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  const image = context.createImageData(rows[0].length, rows.length);
  const pixels = new Uint32Array(image.data.buffer);
  const colors = SHADES[isDark() ? "dark" : "light"];
  let i = 0;
  for (const row of rows) {
    for (const weight of row) pixels[i++] = colors[Math.round(Math.sqrt(Math.min(weight / full, 1)) * 255)];
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
