// The page: controls above, one panel or two below. Each change of the state draws all anew.

import type { Entry, Payload } from "./data.ts";
import { Store } from "./data.ts";
import { h, renew, select, slider } from "./dom.ts";
import { drawGrid } from "./grid.ts";
import { drawLines } from "./lines.ts";
import { drawMap } from "./map.ts";
import { drawNeurons } from "./neurons.ts";
import type { Panel } from "./panel.ts";
import type { State, View } from "./state.ts";
import { VIEWS, initial, mapOf, pressed, shownEntries, steps, within } from "./state.ts";
import { drawTime } from "./time.ts";
import type { Words } from "./words.ts";
import { LANGUAGES } from "./words.ts";

const PATIENCE = 300; // milliseconds, after which a sign of work is shown

const DRAW: Record<View, (panel: Panel) => Promise<void>> = {
  lines: drawLines,
  grid: drawGrid,
  map: drawMap,
  neurons: drawNeurons,
  time: drawTime,
};

const textOf = (id: string) => document.getElementById(id)?.textContent ?? null;
const payload: Payload = JSON.parse(textOf("payload") as string);
const store = new Store(payload, textOf);
const app = document.getElementById("app") as HTMLElement;
const header = h("header", {});
const panels = h("main", {});
const status = h("p", { className: "status", role: "status", "aria-live": "polite" });
app.append(header, panels, status);

let state = initial(payload);
let language = navigator.language.startsWith("zh") ? "zh" : "en";
let drawing = 0; // the number of the latest drawing

function set(change: Partial<State>) {
  state = within({ ...state, ...change }, payload);
  draw();
}

function draw() {
  const focused = focusPath();
  drawHeader();
  restoreFocus(focused);
  drawPanels(() => restoreFocus(focused));
}

function drawHeader() {
  const words = LANGUAGES[language];
  const entry = payload.entries[state.entry];
  const map = mapOf(entry, state.kind);
  const most = (name: "layers" | "heads") =>
    Math.max(...shownEntries(state, payload).map((one) => mapOf(one, state.kind)[name]));
  const named = payload.entries.map((one, i): [string, string] => [String(i), nameOf(one)]);
  const number = (value: number, count: number, label: string, change: (v: number) => void) =>
    slider(label, [0, count - 1, 1], value, `${value}`, change);
  document.documentElement.lang = language;
  document.title = words.title;
  renew(
    header,
    h(
      "div",
      { className: "bar" },
      h("h1", {}, words.title),
      h(
        "nav",
        {},
        ...VIEWS.filter((view) => view !== "time" || steps(entry)).map((view) =>
          h(
            "button",
            { "aria-pressed": String(state.view === view), onclick: () => set({ view }) },
            words[view],
          ),
        ),
      ),
      h("button", { className: "quiet", onclick: changeTheme }, words.theme),
      h("button", { className: "quiet", onclick: changeLanguage }, words.language),
    ),
    h(
      "div",
      { className: "bar" },
      payload.entries.length > 1 &&
        select(words.show, named, String(state.entry), (value) => set({ entry: Number(value) })),
      payload.entries.length > 1 &&
        select(words.beside, [["", words.none], ...named], String(state.beside ?? ""), (value) =>
          set({ beside: value === "" ? null : Number(value) }),
        ),
      entry.maps.length > 1 &&
        h(
          "span",
          { className: "kinds", role: "group" },
          ...entry.maps.map(({ kind }) =>
            h(
              "button",
              {
                "aria-pressed": String(kind === map.kind),
                onclick: () => set({ kind, row: null, column: null }),
              },
              words[kind],
            ),
          ),
        ),
      state.view !== "grid" &&
        number(state.layer, most("layers"), words.layer, (layer) => set({ layer })),
      (state.view === "map" || state.view === "neurons") &&
        number(state.head, most("heads"), words.head, (head) => set({ head })),
    ),
  );
}

/** The model and, where there are several texts, how each begins. */
function nameOf({ title, tokens }: Entry): string {
  if (payload.entries.length < 2) return title;
  return `${title}: ${(tokens.source ?? []).slice(0, 8).join(" ").slice(0, 48)}`;
}

/** The error of any weight at most, and that of small ones where roots are stored. */
function exactness(words: Words): string {
  const { error, name } = payload.rounding;
  if (name === "linear") return error.toPrecision(1);
  return `${error.toPrecision(1)}${words.comma}${words.small} ${name === "root" ? 0.0004 : 0.001}`;
}

/** What keys do in this view, or fingers where there is no keyboard. */
function hints(words: Words): string {
  const { view } = state;
  if (window.matchMedia("(pointer: coarse)").matches) return view === "lines" ? words.touch : "";
  const views = VIEWS.length - (steps(payload.entries[state.entry]) ? 0 : 1);
  const moves = view === "grid" ? [] : view === "time" ? [words.keyStep] : [words.keyLayer, words.keyHead];
  return `${words.keys} ${[...moves, `1–${views} ${words.keyView}`, words.keyUnpin].join(words.comma)}`;
}

function drawPanels(done: () => void) {
  const current = ++drawing;
  const words = LANGUAGES[language];
  const help = `${hints(words) && `${hints(words)}${words.period} `}${words.exact} ${exactness(words)}${words.period}`;
  let isSaid = false; // by a view, of what is pinned in it
  const entries = state.beside === null ? [state.entry] : [state.entry, state.beside];
  panels.className = entries.length > 1 ? "two" : "";
  while (panels.children.length > entries.length) panels.lastElementChild?.remove();
  while (panels.children.length < entries.length) {
    panels.append(h("section", { className: "panel" }, h("h2", {}), h("div", { className: "view" })));
  }
  entries.forEach((number, i) => {
    const entry = payload.entries[number];
    const map = mapOf(entry, state.kind);
    const [heading, host] = panels.children[i].children as unknown as HTMLElement[];
    const own = within({ ...state, entry: number, beside: null }, payload);
    heading.textContent = [nameOf(entry), ...differences(own)].join(" · ");
    host.className = `view ${own.view}`;
    host.dataset.working = words.working;
    window.setTimeout(() => {
      if (current === drawing && document.body.dataset.drawn !== String(current)) {
        host.setAttribute("aria-busy", "true");
      }
    }, PATIENCE);
    DRAW[own.view]({
      host,
      store,
      entry,
      map,
      layer: own.layer,
      head: own.head,
      state: own,
      words,
      set,
      say: (text) => {
        isSaid = true;
        status.textContent = text;
      },
      isCurrent: () => current === drawing,
    })
      .then(() => {
        if (current !== drawing) return;
        if (!isSaid) status.textContent = help;
        host.removeAttribute("aria-busy");
        done();
        document.body.dataset.drawn = String(current);
      })
      .catch((error: Error) => {
        host.textContent = error.message;
      });
  });
}

/** What a panel shows instead of what was chosen, which it lacks. */
function differences(own: State): string[] {
  const words = LANGUAGES[language];
  return [
    own.kind !== state.kind ? words[own.kind as "encoder"] : "",
    own.layer !== state.layer ? `${words.layer} ${own.layer}` : "",
    own.head !== state.head ? `${words.head} ${own.head}` : "",
  ].filter(Boolean);
}

function changeTheme() {
  const root = document.documentElement;
  const dark = getComputedStyle(root).getPropertyValue("--dark").trim() === "1";
  root.dataset.theme = dark ? "light" : "dark";
  draw();
}

function changeLanguage() {
  language = language === "en" ? "zh" : "en";
  draw();
}

/** Where the focus is: elements are made anew, and the keyboard goes on at the same place. */
function focusPath(): number[] | null {
  const path: number[] = [];
  let element: Element | null = document.activeElement;
  if (!element || !app.contains(element)) return null;
  while (element && element !== app) {
    path.unshift([...(element.parentElement as Element).children].indexOf(element));
    element = element.parentElement;
  }
  return path;
}

function restoreFocus(path: number[] | null) {
  if (!path) return;
  let element: Element | undefined = app;
  for (const place of path) element = element?.children[place];
  if (element instanceof HTMLElement && element !== document.activeElement) {
    element.focus({ preventScroll: true });
  }
}

document.addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("select, input[type=range]") && event.key.startsWith("Arrow")) return;
  const change = pressed(event.key, state);
  if (!change || (change.view === "time" && !steps(payload.entries[state.entry]))) return;
  event.preventDefault();
  if (event.key === "Escape") (document.activeElement as HTMLElement).blur(); // its lines, too
  set(change);
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
window.addEventListener("resize", draw);
draw();
