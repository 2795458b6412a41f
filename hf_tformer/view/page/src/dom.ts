// Elements in one call. Text becomes text: nothing in a token can become markup.

type Child = Node | string | number | null | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (name === "style") {
      for (const [key, text] of Object.entries(value as Record<string, string>)) {
        element.style.setProperty(key, text);
      }
    } else if (name in element && !name.startsWith("aria")) {
      (element as unknown as Props)[name] = value;
    } else {
      element.setAttribute(name, String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== false) element.append(child instanceof Node ? child : `${child}`);
  }
  return element;
}

/** Puts `fresh` in the place of the children. A slider that is held stays: it would slip away.
 *  What was scrolled is scrolled as far again. */
export function renew(parent: Element, ...fresh: Child[]) {
  const before = [...parent.children].map(({ className, scrollLeft, scrollTop }) => {
    return { className, scrollLeft, scrollTop };
  });
  merge(parent, h("div", {}, ...fresh), document.activeElement);
  for (const child of parent.children) {
    const same = before.find(({ className }) => className === child.className);
    if (same) child.scrollTo(same.scrollLeft, same.scrollTop);
  }
}

function merge(parent: Element, fresh: Element, held: Element | null) {
  const isSlider = held instanceof HTMLInputElement && held.type === "range";
  const place = [...parent.childNodes].findIndex((node) => isSlider && node.contains(held));
  const kept = parent.childNodes[place];
  const children = [...fresh.childNodes];
  const match = children[place];
  if (!kept || kept.nodeName !== match?.nodeName) return parent.replaceChildren(...children);
  while (kept.previousSibling) kept.previousSibling.remove();
  while (kept.nextSibling) kept.nextSibling.remove();
  parent.prepend(...children.slice(0, place));
  parent.append(...children.slice(place + 1));
  if (kept !== held) return merge(kept as Element, match as Element, held);
  const { max, value } = match as HTMLInputElement;
  Object.assign(held, { max, value });
}

/** A token in a place of limited room: whole in its title, as far as that can be read. */
export function tokenLabel(token: string, room = 24): string {
  const letters = [...token.slice(0, room * 4)];
  return letters.length > room || token.length > room * 4
    ? `${letters.slice(0, room - 1).join("")}…`
    : token;
}

export function tokenElement(token: string, props: Props = {}): HTMLElement {
  return h("bdi", { ...props, title: tokenLabel(token, 300) }, tokenLabel(token));
}

export function select(
  label: string,
  options: [string, string][],
  value: string,
  choose: (value: string) => void,
): HTMLElement {
  const box = h("select", { onchange: (event: Event) => choose(valueOf(event)) });
  for (const [key, text] of options) box.append(h("option", { value: key, selected: key === value }, text));
  return h("label", {}, label, " ", box);
}

export function slider(
  label: string,
  [least, most, step]: [number, number, number],
  value: number,
  shown: string,
  move: (value: number) => void,
): HTMLElement {
  const range = h("input", {
    type: "range",
    min: String(least),
    max: String(most),
    step: String(step),
    oninput: (event: Event) => move(Number(valueOf(event))),
  });
  range.value = String(value); // after its ends, or it is clipped
  return h("label", {}, label, " ", range, " ", h("output", {}, shown));
}

export function valueOf(event: Event): string {
  return (event.target as HTMLInputElement).value;
}

/** A canvas of that size on the page, as sharp as the screen. */
export function sharpen(canvas: HTMLCanvasElement, width: number, height: number) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
