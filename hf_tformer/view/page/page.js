// Built by `make page` from page/src: fd28f70d2aa265c014828ecc76a79f7140ac0e15f2c599e5770350db68603f77
"use strict";
(() => {
  // src/data.ts
  var Head = class {
    constructor(rows, columns, values) {
      this.rows = rows;
      this.columns = columns;
      this.values = values;
    }
    rows;
    columns;
    values;
    at(row, column) {
      return this.values[row * this.columns + column];
    }
    row(row) {
      return this.values.subarray(row * this.columns, (row + 1) * this.columns);
    }
  };
  async function unpack(text) {
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }
  function decode(buffer, rounding) {
    const isLinear = rounding.bits === 16;
    const codes = isLinear ? new Uint16Array(buffer) : new Uint8Array(buffer);
    const values = new Float32Array(codes.length);
    for (let i = 0; i < codes.length; i++) {
      values[i] = isLinear ? codes[i] / 65535 : (codes[i] / 255) ** 2;
    }
    return values;
  }
  function format(weight, rounding) {
    return weight.toFixed(rounding.error < 1e-4 ? 5 : 3);
  }
  function split(values, parts) {
    const size = values.length / parts;
    return Array.from({ length: parts }, (_, i) => values.subarray(i * size, (i + 1) * size));
  }
  var KEPT = 64;
  var Store = class {
    constructor(payload2, textOf2) {
      this.payload = payload2;
      this.textOf = textOf2;
    }
    payload;
    textOf;
    heads = /* @__PURE__ */ new Map();
    head(entry, map, layer, head) {
      const name = `weights-${map.chunks}-${layer}`;
      const key = `${name}-${head}`;
      const found = this.heads.get(key) ?? this.read(name, head, entry, map);
      this.heads.delete(key);
      this.heads.set(key, found);
      if (this.heads.size > KEPT) this.heads.delete(this.heads.keys().next().value);
      return found;
    }
    async read(name, head, entry, map) {
      const values = decode(await unpack(this.line(name, head)), this.payload.rounding);
      return new Head(entry.tokens[map.rows].length, entry.tokens[map.columns].length, values);
    }
    /** The mean of several heads of a layer. */
    async mean(entry, map, layer, heads) {
      const all = await Promise.all(heads.map((head) => this.head(entry, map, layer, head)));
      const sum = new Float32Array(all[0].values.length);
      for (const { values } of all) for (let i = 0; i < sum.length; i++) sum[i] += values[i];
      return new Head(all[0].rows, all[0].columns, sum.map((value) => value / all.length));
    }
    /** [heads] of rows × columns: the largest weight of each part, for a picture. */
    async thumbnails(map, layer) {
      const small = { name: "root", bits: 8, error: 1 };
      return split(decode(await unpack(map.thumbnails[layer]), small), map.heads);
    }
    async scores(map, layer) {
      const about2 = map.scores[layer];
      if (!about2) return null;
      const floats = async (line) => new Float32Array(await unpack(this.line(`scores-${map.chunks}-${layer}`, line)));
      const after = about2.hasBias ? 4 : 3;
      return {
        ...about2,
        hidden: new Uint8Array(await unpack(this.line(`scores-${map.chunks}-${layer}`, 0))),
        query: split(await floats(1), map.heads),
        key: split(await floats(2), map.heads),
        bias: about2.hasBias ? split(await floats(3), map.heads) : null,
        cos: about2.turned ? await floats(after) : null,
        sin: about2.turned ? await floats(after + 1) : null
      };
    }
    line(name, number) {
      const text = this.textOf(name);
      if (text === null) throw new Error(`the page holds no ${name}`);
      return text.split("\n")[number];
    }
  };

  // src/dom.ts
  function h(tag, props = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(props)) {
      if (value === null || value === void 0 || value === false) continue;
      if (name.startsWith("on")) {
        element.addEventListener(name.slice(2), value);
      } else if (name === "style") {
        for (const [key, text] of Object.entries(value)) {
          element.style.setProperty(key, text);
        }
      } else if (name in element && !name.startsWith("aria")) {
        element[name] = value;
      } else {
        element.setAttribute(name, String(value));
      }
    }
    for (const child of children) {
      if (child !== null && child !== false) element.append(child instanceof Node ? child : `${child}`);
    }
    return element;
  }
  function renew(parent, ...fresh) {
    const before = [...parent.children].map(({ className, scrollLeft, scrollTop }) => {
      return { className, scrollLeft, scrollTop };
    });
    merge(parent, h("div", {}, ...fresh), document.activeElement);
    for (const child of parent.children) {
      const same = before.find(({ className }) => className === child.className);
      if (same) child.scrollTo(same.scrollLeft, same.scrollTop);
    }
  }
  function merge(parent, fresh, held) {
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
    if (kept !== held) return merge(kept, match, held);
    const { max, value } = match;
    Object.assign(held, { max, value });
  }
  function tokenLabel(token, room = 24) {
    const letters = [...token.slice(0, room * 4)];
    return letters.length > room || token.length > room * 4 ? `${letters.slice(0, room - 1).join("")}\u2026` : token;
  }
  function tokenElement(token, props = {}) {
    return h("bdi", { ...props, title: tokenLabel(token, 300) }, tokenLabel(token));
  }
  function select(label2, options, value, choose) {
    const box = h("select", { onchange: (event) => choose(valueOf(event)) });
    for (const [key, text] of options) box.append(h("option", { value: key, selected: key === value }, text));
    return h("label", {}, label2, " ", box);
  }
  function slider(label2, [least, most, step], value, shown, move) {
    const range = h("input", {
      type: "range",
      min: String(least),
      max: String(most),
      step: String(step),
      oninput: (event) => move(Number(valueOf(event)))
    });
    range.value = String(value);
    return h("label", {}, label2, " ", range, " ", h("output", {}, shown));
  }
  function valueOf(event) {
    return event.target.value;
  }
  function sharpen(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.setProperty("width", `${width}px`);
    canvas.style.setProperty("height", `${height}px`);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  // src/color.ts
  var BACK = { light: [255, 255, 255], dark: [24, 26, 31] };
  var SEEN = 3.2;
  function headColor(head, heads, dark) {
    const hue = Math.round(head * 360 / heads + 210) % 360;
    let light = 50;
    const back = BACK[dark ? "dark" : "light"];
    while (contrast(fromHsl(hue, 0.7, light / 100), back) < SEEN) light += dark ? 2 : -2;
    return `hsl(${hue} 70% ${light}%)`;
  }
  function fromHsl(hue, saturation, light) {
    const reach = saturation * Math.min(light, 1 - light);
    const channel = (n) => {
      const place = (n + hue / 30) % 12;
      return 255 * (light - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1)));
    };
    return [channel(0), channel(8), channel(4)];
  }
  function contrast(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }
  function luminance(color) {
    const [r, g, b] = color.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  var SCALES = {
    light: [[255, 255, 255], [158, 202, 225], [33, 113, 181], [8, 29, 88]],
    dark: [[24, 26, 31], [40, 70, 130], [70, 150, 220], [255, 244, 190]]
  };
  function weightColor(weight, dark) {
    const scale = SCALES[dark ? "dark" : "light"];
    const place = Math.sqrt(Math.min(Math.max(weight, 0), 1)) * (scale.length - 1);
    const below = Math.min(Math.floor(place), scale.length - 2);
    return scale[below].map(
      (low, i) => Math.round(low + (scale[below + 1][i] - low) * (place - below))
    );
  }
  function shades(dark) {
    const bytes = new Uint8ClampedArray(256 * 4);
    for (let i = 0; i < 256; i++) bytes.set([...weightColor((i / 255) ** 2, dark), 255], i * 4);
    return new Uint32Array(bytes.buffer);
  }
  var SHADES = { light: shades(false), dark: shades(true) };
  function paintWeights(canvas, rows, full = 1) {
    const context = canvas.getContext("2d");
    const image = context.createImageData(rows[0].length, rows.length);
    const pixels = new Uint32Array(image.data.buffer);
    const colors = SHADES[isDark() ? "dark" : "light"];
    let i = 0;
    for (const row of rows) {
      for (const weight of row) pixels[i++] = colors[Math.round(Math.sqrt(Math.min(weight / full, 1)) * 255)];
    }
    context.putImageData(image, 0, 0);
  }
  function signColor(value, largest) {
    const share = largest > 0 ? Math.min(Math.abs(value) / largest, 1) : 0;
    return `hsl(${value >= 0 ? 215 : 25} 85% 50% / ${share.toFixed(3)})`;
  }
  function isDark() {
    return getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  }

  // src/words.ts
  var en = {
    title: "Attention",
    lines: "Lines",
    grid: "All heads",
    map: "Map",
    neurons: "Neurons",
    time: "Writing",
    encoder: "encoder",
    decoder: "decoder",
    cross: "cross (target looks at source)",
    show: "Text",
    beside: "Beside",
    none: "none",
    layer: "Layer",
    head: "Head",
    heads: "Heads",
    allHeads: "all",
    oneHead: "one",
    reset: "the mean of all",
    several: "Several heads: a line shows the largest of their weights, in the colour of that head.",
    chosen: "Shown first of all heads, by ",
    colon: ": ",
    repeats: "tokens that repeat:",
    sortedHint: "The largest first. Click a head to see its map.",
    scaleOf: "Colours by the root of a weight; from the last number on they are full",
    working: "Reading this layer \u2026",
    touch: "Tap a token to keep its lines, a number to choose a head",
    theme: "Dark or light",
    language: "\u4E2D\u6587",
    keys: "Keys:",
    keyLayer: "\u2190 \u2192 layer",
    keyStep: "\u2190 \u2192 step",
    keyHead: "\u2191 \u2193 head",
    keyView: "view",
    keyUnpin: "Esc unpins",
    exact: "Weights are exact to",
    small: "those below 0.01 to",
    looks: "looks at",
    linesHint: "Left looks at right. Point at a token to see its lines alone; click to keep it.",
    gridHint: "A row for each layer. Click a head to see its map.",
    mapHint: "A row looks at the columns. Point at a cell, or move with the arrow keys.",
    sort: "Sort by",
    byLayer: "layer and head",
    least: "at least",
    zoom: "Zoom",
    fit: "fit",
    table: "As a table",
    weight: "weight",
    token: "token",
    neuronsHint: "How the weights of one token come about. Choose the token that looks.",
    looking: "Token that looks",
    turnedNote: "q and k are turned by their position (pairs of the same colour frame)",
    unturned: "before they are turned",
    noScores: "The numbers behind the weights of this layer are not known.",
    seesNothing: "This token sees no other: it is padding.",
    scoresLeftOut: "The numbers behind the weights would have made this page too large.",
    sum: "sum",
    scale: "\xD7 scale",
    cap: "bounded",
    bias: "+ bias",
    score: "score",
    softmax: "softmax",
    formulaFor: "With the numbers of this head, for",
    many: "the largest 60 of",
    timeHint: "What each written token was written from. The mean of the chosen heads.",
    step: "Step",
    candidates: "What could have been written here, and how probable it was",
    temperature: "Temperature",
    comma: ", ",
    period: ".",
    writes: "writes",
    source: "source",
    own: "its own text",
    play: "Play",
    stop: "Stop",
    entropy: "entropy",
    first: "first token",
    previous: "previous token",
    diagonal: "diagonal",
    distance: "distance",
    induction: "induction",
    entropyWhy: "bits: 0 looks at one token, 3 at eight alike",
    firstWhy: "mean weight on the first token, where heads rest that find nothing",
    previousWhy: "mean weight on the token before",
    diagonalWhy: "mean weight on the token itself",
    distanceWhy: "how many tokens away it looks, on average",
    inductionWhy: "mean weight on what followed the same token earlier: the head continues a repeat"
  };
  var zh = {
    title: "\u6CE8\u610F\u529B",
    lines: "\u8FDE\u7EBF",
    grid: "\u6240\u6709\u5934",
    map: "\u77E9\u9635",
    neurons: "\u795E\u7ECF\u5143",
    time: "\u751F\u6210",
    encoder: "\u7F16\u7801\u5668",
    decoder: "\u89E3\u7801\u5668",
    cross: "\u4EA4\u53C9\u6CE8\u610F\u529B\uFF08\u76EE\u6807\u770B\u6E90\u6587\uFF09",
    show: "\u6587\u672C",
    beside: "\u5BF9\u7167",
    none: "\u65E0",
    layer: "\u5C42",
    head: "\u5934",
    heads: "\u5934",
    allHeads: "\u5168\u9009",
    oneHead: "\u53EA\u770B\u4E00\u4E2A",
    reset: "\u6240\u6709\u5934\u7684\u5E73\u5747",
    several: "\u591A\u4E2A\u5934\uFF1A\u6BCF\u6761\u7EBF\u53D6\u5176\u4E2D\u6700\u5927\u7684\u6743\u91CD\uFF0C\u989C\u8272\u662F\u90A3\u4E2A\u5934\u7684\u989C\u8272\u3002",
    chosen: "\u5728\u6240\u6709\u5934\u4E2D\u6700\u5148\u663E\u793A\u5B83\uFF0C\u4F9D\u636E\u662F",
    colon: "\uFF1A",
    repeats: "\u91CD\u590D\u51FA\u73B0\u7684\u8BCD\u5143\u6570\uFF1A",
    sortedHint: "\u4ECE\u5927\u5230\u5C0F\u6392\u5217\u3002\u70B9\u51FB\u4E00\u4E2A\u5934\uFF0C\u67E5\u770B\u5B83\u7684\u77E9\u9635\u3002",
    scaleOf: "\u989C\u8272\u6309\u6743\u91CD\u7684\u5E73\u65B9\u6839\uFF1B\u8FBE\u5230\u6700\u540E\u4E00\u4E2A\u6570\u5373\u4E3A\u6700\u6DF1",
    working: "\u6B63\u5728\u8BFB\u53D6\u8FD9\u4E00\u5C42\u2026\u2026",
    touch: "\u70B9\u6309\u8BCD\u5143\u53EF\u56FA\u5B9A\u5B83\u7684\u8FDE\u7EBF\uFF0C\u70B9\u6309\u6570\u5B57\u53EF\u9009\u62E9\u5934",
    theme: "\u6DF1\u8272\u6216\u6D45\u8272",
    language: "English",
    keys: "\u6309\u952E\uFF1A",
    keyLayer: "\u2190 \u2192 \u6362\u5C42",
    keyStep: "\u2190 \u2192 \u6362\u6B65",
    keyHead: "\u2191 \u2193 \u6362\u5934",
    keyView: "\u6362\u89C6\u56FE",
    keyUnpin: "Esc \u53D6\u6D88\u56FA\u5B9A",
    exact: "\u6743\u91CD\u7684\u8BEF\u5DEE\u4E0D\u8D85\u8FC7",
    small: "\u5C0F\u4E8E 0.01 \u7684\u4E0D\u8D85\u8FC7",
    looks: "\u5173\u6CE8",
    linesHint: "\u5DE6\u8FB9\u7684\u8BCD\u5143\u770B\u53F3\u8FB9\u7684\u8BCD\u5143\u3002\u6307\u5411\u4E00\u4E2A\u8BCD\u5143\u53EA\u770B\u5B83\u7684\u8FDE\u7EBF\uFF1B\u70B9\u51FB\u53EF\u56FA\u5B9A\u3002",
    gridHint: "\u6BCF\u884C\u662F\u4E00\u5C42\u3002\u70B9\u51FB\u4E00\u4E2A\u5934\uFF0C\u67E5\u770B\u5B83\u7684\u77E9\u9635\u3002",
    mapHint: "\u6BCF\u884C\u770B\u5404\u5217\u3002\u6307\u5411\u683C\u5B50\uFF0C\u6216\u7528\u65B9\u5411\u952E\u79FB\u52A8\u3002",
    sort: "\u6392\u5E8F",
    byLayer: "\u6309\u5C42\u548C\u5934",
    least: "\u4E0D\u5C0F\u4E8E",
    zoom: "\u7F29\u653E",
    fit: "\u9002\u5E94",
    table: "\u663E\u793A\u4E3A\u8868\u683C",
    weight: "\u6743\u91CD",
    token: "\u8BCD\u5143",
    neuronsHint: "\u4E00\u4E2A\u8BCD\u5143\u7684\u6743\u91CD\u662F\u600E\u6837\u7B97\u51FA\u6765\u7684\u3002\u8BF7\u9009\u62E9\u53D1\u51FA\u5173\u6CE8\u7684\u8BCD\u5143\u3002",
    looking: "\u53D1\u51FA\u5173\u6CE8\u7684\u8BCD\u5143",
    turnedNote: "q \u548C k \u5DF2\u6309\u4F4D\u7F6E\u65CB\u8F6C\uFF08\u540C\u8272\u8FB9\u6846\u7684\u662F\u4E00\u5BF9\uFF09",
    unturned: "\u65CB\u8F6C\u4E4B\u524D",
    noScores: "\u8FD9\u4E00\u5C42\u7684\u6743\u91CD\u7531\u54EA\u4E9B\u6570\u5F97\u6765\uFF0C\u65E0\u4ECE\u77E5\u9053\u3002",
    seesNothing: "\u8FD9\u4E2A\u8BCD\u5143\u770B\u4E0D\u5230\u4EFB\u4F55\u8BCD\u5143\uFF1A\u5B83\u662F\u586B\u5145\u3002",
    scoresLeftOut: "\u6743\u91CD\u80CC\u540E\u7684\u6570\u592A\u591A\uFF0C\u653E\u8FDB\u6765\u9875\u9762\u4F1A\u8FC7\u5927\uFF0C\u6240\u4EE5\u6CA1\u6709\u4FDD\u5B58\u3002",
    sum: "\u6C42\u548C",
    scale: "\xD7 \u7F29\u653E",
    cap: "\u9650\u5E45",
    bias: "+ \u504F\u7F6E",
    score: "\u5206\u6570",
    softmax: "softmax",
    formulaFor: "\u4EE3\u5165\u8FD9\u4E2A\u5934\u7684\u6570\uFF0C\u770B",
    many: "\u6700\u5927\u7684 60 \u4E2A\uFF0C\u5171",
    timeHint: "\u5199\u51FA\u7684\u6BCF\u4E2A\u8BCD\u5143\u662F\u6839\u636E\u4EC0\u4E48\u5199\u7684\u3002\u53D6\u6240\u9009\u5404\u5934\u7684\u5E73\u5747\u3002",
    step: "\u6B65",
    candidates: "\u8FD9\u91CC\u672C\u53EF\u4EE5\u5199\u51FA\u7684\u8BCD\u5143\u53CA\u5176\u6982\u7387",
    temperature: "\u6E29\u5EA6",
    comma: "\uFF0C",
    period: "\u3002",
    writes: "\u5199\u51FA",
    source: "\u6E90\u6587",
    own: "\u5DF2\u5199\u7684\u6587\u672C",
    play: "\u64AD\u653E",
    stop: "\u505C\u6B62",
    entropy: "\u71B5",
    first: "\u9996\u8BCD\u5143",
    previous: "\u524D\u4E00\u8BCD\u5143",
    diagonal: "\u5BF9\u89D2\u7EBF",
    distance: "\u8DDD\u79BB",
    induction: "\u5F52\u7EB3",
    entropyWhy: "\u5355\u4F4D\u4E3A\u6BD4\u7279\uFF1A0 \u8868\u793A\u53EA\u770B\u4E00\u4E2A\u8BCD\u5143\uFF0C3 \u8868\u793A\u5747\u5300\u5730\u770B\u516B\u4E2A",
    firstWhy: "\u843D\u5728\u9996\u8BCD\u5143\u4E0A\u7684\u5E73\u5747\u6743\u91CD\uFF1B\u6CA1\u6709\u627E\u5230\u76EE\u6807\u7684\u5934\u5E38\u505C\u5728\u90A3\u91CC",
    previousWhy: "\u843D\u5728\u524D\u4E00\u4E2A\u8BCD\u5143\u4E0A\u7684\u5E73\u5747\u6743\u91CD",
    diagonalWhy: "\u843D\u5728\u8BCD\u5143\u81EA\u8EAB\u4E0A\u7684\u5E73\u5747\u6743\u91CD",
    distanceWhy: "\u5E73\u5747\u770B\u5230\u591A\u8FDC\u4E4B\u5916\u7684\u8BCD\u5143",
    inductionWhy: "\u843D\u5728\u201C\u4E0A\u4E00\u6B21\u51FA\u73B0\u540C\u4E00\u8BCD\u5143\u4E4B\u540E\u201D\u7684\u8BCD\u5143\u4E0A\u7684\u5E73\u5747\u6743\u91CD\uFF1A\u8FD9\u4E2A\u5934\u5728\u63A5\u7EED\u91CD\u590D"
  };
  var LANGUAGES = { en, zh };
  var MEASURES = [
    "entropy",
    "previous",
    "first",
    "induction",
    "diagonal",
    "distance"
  ];

  // src/grid.ts
  async function drawGrid(panel) {
    const { host, map, words, state: state2, set: set2, store: store2 } = panel;
    const values = map.measures[state2.sort];
    const pictures = await Promise.all(
      [...Array(map.layers).keys()].map((layer) => store2.thumbnails(map, layer))
    );
    if (!panel.isCurrent()) return;
    const cells = order(map.layers, map.heads, values);
    const range = values ? [Math.min(...values.flat()), Math.max(...values.flat())] : [0, 1];
    const least = range[0] + state2.least * (range[1] - range[0]);
    const shape = [panel.entry.tokens[map.rows].length, panel.entry.tokens[map.columns].length].map(
      (length) => Math.min(length, 32)
    );
    const grid = h("div", {
      className: values ? "grid sorted" : "grid",
      style: { "--heads": String(map.heads) }
    });
    for (const { layer, head, value } of cells) {
      grid.append(
        h(
          "button",
          {
            className: value !== null && value < least ? "cell shaded" : "cell",
            "aria-label": described(panel, layer, head),
            title: described(panel, layer, head),
            onclick: () => set2({ view: "map", layer, head })
          },
          picture(pictures[layer][head], shape),
          h("span", {}, `${layer}\xB7${head}${value === null ? "" : `  ${value.toFixed(2)}`}`)
        )
      );
    }
    renew(host, h("p", { className: "hint" }, state2.sort ? words.sortedHint : words.gridHint), controls(panel, least), grid);
    function picture(values2, [rows, columns]) {
      const canvas = h("canvas", { width: columns, height: rows });
      paintWeights(canvas, split(values2, rows));
      return canvas;
    }
  }
  function order(layers, heads, values) {
    const cells = [];
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        cells.push({ layer, head, value: values ? values[layer][head] : null });
      }
    }
    return values ? cells.sort((a, b) => b.value - a.value) : cells;
  }
  function described({ map, words }, layer, head) {
    const measured = MEASURES.filter((name) => map.measures[name]).map(
      (name) => `${words[name]} ${map.measures[name][layer][head].toFixed(2)}${name === "induction" ? ` (${words.repeats} ${map.repeats})` : ""}`
    );
    return `${words.layer} ${layer}${words.comma}${words.head} ${head}${words.colon}${measured.join(words.comma)}`;
  }
  function controls({ map, words, state: state2, set: set2 }, least) {
    const names = MEASURES.filter((name) => map.measures[name]);
    const options = names.map((name) => [name, words[name]]);
    const why = words[`${state2.sort}Why`];
    return h(
      "div",
      { className: "controls" },
      select(
        words.sort,
        [["", words.byLayer], ...options],
        state2.sort,
        (sort) => set2({ sort, least: 0 })
      ),
      state2.sort && slider(
        words.least,
        [0, 1, 0.01],
        state2.least,
        least.toFixed(2),
        (value) => set2({ least: value })
      ),
      why ? h("span", { className: "hint" }, why) : null
    );
  }

  // src/panel.ts
  function shownHeads({ map, state: state2 }, otherwise) {
    return state2.heads ? allHeads(map).filter((head) => state2.heads?.has(head)) : otherwise;
  }
  function allHeads(map) {
    return [...Array(map.heads).keys()];
  }
  function headsOf(panel, heads) {
    const { store: store2, entry, map, layer } = panel;
    return Promise.all(heads.map((head) => store2.head(entry, map, layer, head)));
  }

  // src/telling.ts
  var RULES = ["induction", "previous"];
  var FEWEST = 3;
  function telling(map) {
    const rules = RULES.filter((rule) => map.measures[rule] && (rule !== "induction" || map.repeats >= FEWEST));
    const found = (rules.length ? rules : ["entropy"]).flatMap(
      (rule) => (map.measures[rule] ?? []).flatMap(
        (layer, number) => layer.map((value, head) => ({ layer: number, head, rule, value: rules.length ? value : -value }))
      )
    );
    return found.reduce((best, one) => one.value > best.value ? one : best, {
      layer: 0,
      head: 0,
      rule: "",
      value: Number.NEGATIVE_INFINITY
    });
  }

  // src/lines.ts
  var HEIGHTS = [22, 40];
  var FAINT = 0.02;
  function strongest(heads, { side, index }) {
    const count = !heads.length ? 0 : side === "row" ? heads[0].columns : heads[0].rows;
    return [...Array(count).keys()].map((other) => {
      const weights = heads.map((head) => side === "row" ? head.at(index, other) : head.at(other, index));
      const weight = Math.max(...weights);
      return { weight, head: weights.indexOf(weight) };
    });
  }
  async function drawLines(panel) {
    const { host, entry, map, words, state: state2, say, set: set2 } = panel;
    const shown = shownHeads(panel, [panel.head]);
    const heads = await headsOf(panel, shown);
    if (!panel.isCurrent()) return;
    const rows = entry.tokens[map.rows];
    const columns = entry.tokens[map.columns];
    const pinned = state2.row !== null ? { side: "row", index: state2.row } : state2.column !== null ? { side: "column", index: state2.column } : null;
    let pointed = null;
    const room = window.innerHeight * 0.62 / Math.max(rows.length, columns.length);
    const tall = Math.min(Math.max(Math.floor(room), HEIGHTS[0]), HEIGHTS[1]);
    const canvas = h("canvas", { "aria-hidden": "true" });
    const between = h("div", { className: "between" }, canvas);
    const sides = {
      row: rows.map((token, i) => element(token, { side: "row", index: i })),
      column: columns.map((token, i) => element(token, { side: "column", index: i }))
    };
    const scroller = h(
      "div",
      { className: "lines", style: { "--tall": `${tall}px` } },
      h("div", { className: "side left" }, ...sides.row),
      between,
      h("div", { className: "side right" }, ...sides.column)
    );
    renew(host, h("p", { className: "hint" }, words.linesHint), chips(panel, [panel.head]), about(panel), scroller);
    scroller.addEventListener("scroll", paint);
    paint();
    if (pinned) say(spoken(pinned));
    function element(token, place) {
      const isPinned = pinned?.side === place.side && pinned.index === place.index;
      return h(
        "button",
        {
          className: "token",
          "aria-pressed": String(isPinned),
          onmouseenter: () => point(place),
          onfocus: () => point(place),
          onmouseleave: () => point(null),
          onclick: () => {
            const other = place.side === "row" ? "column" : "row";
            set2({ [place.side]: isPinned ? null : place.index, [other]: null });
          }
        },
        tokenElement(token)
      );
    }
    function point(place) {
      pointed = place;
      if (place) say(spoken(place));
      paint();
    }
    function spoken(place) {
      const [own, others] = place.side === "row" ? [rows, columns] : [columns, rows];
      const found = strongest(heads, place);
      const best = [...found.keys()].sort((a, b) => found[b].weight - found[a].weight).slice(0, 3);
      const named = best.map((i) => {
        const { weight, head } = found[i];
        const its = heads.length > 1 ? ` (${words.head.toLowerCase()} ${shown[head]})` : "";
        return `${tokenLabel(others[i])} ${format(weight, panel.store.payload.rounding)}${its}`;
      });
      return `${tokenLabel(own[place.index])} ${place.side === "row" ? "\u2192" : "\u2190"} ${named.join(", ")}`;
    }
    function paint() {
      const height = scroller.clientHeight;
      const gap = between.clientWidth;
      const context = sharpen(canvas, gap, height);
      const focus = pointed ?? pinned;
      const first = Math.floor(scroller.scrollTop / tall);
      const last = first + Math.ceil(height / tall);
      const middle = (index) => (index + 0.5) * tall - scroller.scrollTop;
      const opposite = focus ? strongest(heads, focus) : [];
      const colors = shown.map((head) => headColor(head, map.heads, isDark()));
      eachPair(focus, heads, [first, last], (row, column, weight, number) => {
        if (weight < FAINT) return;
        context.strokeStyle = colors[number];
        context.globalAlpha = Math.min(Math.sqrt(weight), 1);
        context.lineWidth = 1 + 3 * Math.min(weight, 1);
        context.beginPath();
        context.moveTo(0, middle(row));
        context.lineTo(gap, middle(column));
        context.stroke();
      });
      for (const side of ["row", "column"]) {
        sides[side].forEach((token, i) => {
          const strength = !focus ? 0 : side === focus.side ? Number(i === focus.index) : opposite[i]?.weight ?? 0;
          token.style.setProperty("--strength", strength.toFixed(3));
        });
      }
    }
  }
  function eachPair(focus, heads, [first, last], see) {
    if (!heads.length) return;
    const { rows, columns } = heads[0];
    const pair = (row, column) => {
      let number = 0;
      for (let i = 1; i < heads.length; i++) {
        if (heads[i].at(row, column) > heads[number].at(row, column)) number = i;
      }
      see(row, column, heads[number].at(row, column), number);
    };
    if (focus?.side === "row") {
      for (let column = 0; column < columns; column++) pair(focus.index, column);
    } else if (focus) {
      for (let row = 0; row < rows; row++) pair(row, focus.index);
    } else {
      for (let row = 0; row < rows; row++) {
        const isSeen = row >= first && row <= last;
        const end = isSeen ? columns : Math.min(last + 1, columns);
        for (let column = isSeen ? 0 : first; column < end; column++) pair(row, column);
      }
    }
  }
  function about(panel) {
    const { map, state: state2, words, layer, head } = panel;
    if (state2.heads) return h("p", { className: "hint" }, words.several);
    const chosen = telling(map);
    const isChosen = chosen.layer === layer && chosen.head === head && chosen.rule;
    const why = isChosen ? ` ${words.chosen}${words[`${chosen.rule}Why`]}${words.period}` : "";
    return h("p", { className: "about" }, `${described(panel, layer, head)}${words.period}${why}`);
  }
  function chips({ map, state: state2, words, set: set2 }, otherwise) {
    const shown = state2.heads ?? new Set(otherwise);
    const clicked = (head) => {
      if (!state2.heads) return set2({ head, heads: otherwise.length > 1 ? /* @__PURE__ */ new Set([head]) : null });
      const heads = new Set(state2.heads);
      if (!heads.delete(head)) heads.add(head);
      set2({ head, heads });
    };
    return h(
      "div",
      { className: "chips", role: "group", "aria-label": words.heads },
      h("span", {}, words.heads),
      ...allHeads(map).map(
        (head) => h(
          "button",
          {
            className: "chip",
            "aria-pressed": String(shown.has(head)),
            style: { "--color": headColor(head, map.heads, isDark()) },
            onclick: () => clicked(head)
          },
          head
        )
      ),
      h("button", { onclick: () => set2({ heads: new Set(allHeads(map)) }) }, words.allHeads),
      h("button", { onclick: () => set2({ heads: null }) }, otherwise.length > 1 ? words.reset : words.oneHead)
    );
  }

  // src/map.ts
  var MARGIN = 96;
  var READABLE = 12;
  var UPRIGHT = /^[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]+$/u;
  var TABLE = 60;
  async function drawMap(panel) {
    const { host, store: store2, entry, map, layer, head, words, state: state2, set: set2, say } = panel;
    const matrix = await store2.head(entry, map, layer, head);
    if (!panel.isCurrent()) return;
    const rows = entry.tokens[map.rows];
    const columns = entry.tokens[map.columns];
    const room = Math.min(host.clientWidth || 800, 1100) - MARGIN;
    const fitting = Math.max(1, Math.min(40, Math.floor(Math.min(room, 560) / columns.length)));
    const cell = state2.zoom || fitting;
    const full = fullOf(matrix.values);
    const size = { width: columns.length * cell + MARGIN, height: rows.length * cell + MARGIN };
    const canvas = h("canvas", {});
    const tip = h("div", { className: "tip", hidden: true });
    const scroller = h(
      "div",
      {
        className: "map",
        "data-cell": cell,
        "data-margin": MARGIN,
        tabIndex: 0,
        role: "application",
        "aria-label": described(panel, layer, head),
        onpointermove: (event) => point(placeOf(event), event),
        onpointerleave: () => point(null),
        onclick: (event) => {
          const place = placeOf(event);
          if (place) set2({ row: place[0], column: place[1] });
        },
        onkeydown: move
      },
      h(
        "div",
        { style: { width: `${size.width}px`, height: `${size.height}px` } },
        h("div", { className: "window" }, canvas)
      )
    );
    renew(
      host,
      h("p", { className: "hint" }, words.mapHint),
      h(
        "div",
        { className: "controls" },
        slider(
          words.zoom,
          [0, 40, 1],
          state2.zoom,
          state2.zoom ? `${cell} px` : words.fit,
          (zoom) => set2({ zoom })
        )
      ),
      bar(),
      scroller,
      tip,
      asTable(panel, matrix)
    );
    scroller.addEventListener("scroll", paint);
    paint();
    if (state2.row !== null && state2.column !== null) say(spoken(state2.row, state2.column));
    function bar() {
      const colors = h("canvas", { width: 128, height: 1, "aria-hidden": "true" });
      const shades2 = Float32Array.from({ length: 128 }, (_, i) => full * (i / 127) ** 2);
      paintWeights(colors, [shades2], full);
      const ends = [0, full / 4, full].map((value) => h("span", {}, String(Number(value.toPrecision(2)))));
      return h("div", { className: "scale", title: words.scaleOf }, colors, h("div", {}, ...ends));
    }
    function placeOf(event) {
      const box = scroller.getBoundingClientRect();
      const x = event.clientX - box.left - scroller.clientLeft - MARGIN;
      const y = event.clientY - box.top - scroller.clientTop - MARGIN;
      const row = Math.floor((y + scroller.scrollTop) / cell);
      const column = Math.floor((x + scroller.scrollLeft) / cell);
      const isInside = x >= 0 && y >= 0 && row < rows.length && column < columns.length;
      return isInside ? [row, column] : null;
    }
    function spoken(row, column) {
      const weight = format(matrix.at(row, column), store2.payload.rounding);
      return `${tokenLabel(rows[row])} \u2192 ${tokenLabel(columns[column])}: ${weight}`;
    }
    function point(place, event) {
      tip.hidden = place === null;
      if (!place || !event) return;
      tip.textContent = spoken(...place);
      tip.style.setProperty("left", `${Math.min(event.clientX + 14, window.innerWidth - 260)}px`);
      tip.style.setProperty("top", `${event.clientY + 14}px`);
    }
    function move(event) {
      const steps2 = {
        ArrowUp: [-1, 0],
        ArrowDown: [1, 0],
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1]
      };
      const step = steps2[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const clip = (value, count) => Math.min(Math.max(value, 0), count - 1);
      const isFirst = state2.row === null || state2.column === null;
      const row = isFirst ? 0 : clip(state2.row + step[0], rows.length);
      const column = isFirst ? 0 : clip(state2.column + step[1], columns.length);
      scroller.scrollTo(
        revealed(column, scroller.scrollLeft, scroller.clientWidth),
        revealed(row, scroller.scrollTop, scroller.clientHeight)
      );
      set2({ row, column });
    }
    function revealed(index, scrolled, length) {
      return Math.min(Math.max(scrolled, (index + 1) * cell + MARGIN - length), index * cell);
    }
    function paint() {
      const width = Math.min(scroller.clientWidth, size.width);
      const height = Math.min(scroller.clientHeight, size.height);
      const context = sharpen(canvas, width, height);
      const left = scroller.scrollLeft;
      const top = scroller.scrollTop;
      const firstRow = Math.floor(top / cell);
      const lastRow = Math.min(rows.length, Math.ceil((top + height) / cell) + 1);
      const firstColumn = Math.floor(left / cell);
      const lastColumn = Math.min(columns.length, Math.ceil((left + width) / cell) + 1);
      const part2 = { width: lastColumn - firstColumn, height: lastRow - firstRow };
      const small = h("canvas", part2);
      const rowsInSight = Array.from({ length: part2.height }, (_, i) => matrix.row(firstRow + i));
      paintWeights(small, rowsInSight.map((row) => row.subarray(firstColumn, lastColumn)), full);
      context.imageSmoothingEnabled = false;
      const [x, y] = [MARGIN + firstColumn * cell - left, MARGIN + firstRow * cell - top];
      context.drawImage(small, x, y, part2.width * cell, part2.height * cell);
      const colors = getComputedStyle(scroller);
      context.fillStyle = colors.backgroundColor;
      context.fillRect(0, 0, width, MARGIN);
      context.fillRect(0, 0, MARGIN, height);
      context.fillStyle = colors.color;
      context.font = `${Math.min(cell, 13)}px system-ui, sans-serif`;
      context.textBaseline = "middle";
      context.textAlign = "right";
      const every = Math.ceil(READABLE / cell);
      for (let row = firstRow; row < lastRow; row += 1) {
        const y2 = MARGIN + (row + 0.5) * cell - top;
        if (row % every || y2 < MARGIN) continue;
        label(context, cell < READABLE ? String(row) : rows[row], MARGIN - 6, y2, 0);
      }
      context.textAlign = "left";
      for (let column = firstColumn; column < lastColumn; column += 1) {
        const x2 = MARGIN + (column + 0.5) * cell - left;
        if (column % every || x2 < MARGIN) continue;
        label(context, cell < READABLE ? String(column) : columns[column], x2, MARGIN - 6, -Math.PI / 2);
      }
      if (state2.row !== null && state2.column !== null) {
        context.strokeStyle = colors.getPropertyValue("--accent");
        context.lineWidth = 2;
        const [x2, y2] = [MARGIN + state2.column * cell - left, MARGIN + state2.row * cell - top];
        if (x2 >= MARGIN && y2 >= MARGIN) context.strokeRect(x2, y2, cell, cell);
      }
    }
  }
  function label(context, token, x, y, angle) {
    context.save();
    context.translate(x, y);
    if (angle && UPRIGHT.test(token)) {
      const letters = [...tokenLabel(token, 6)];
      letters.forEach((letter, i) => context.fillText(letter, -6, (i - letters.length + 0.5) * 13));
    } else {
      context.rotate(angle);
      context.fillText(tokenLabel(token, 14), 0, 0, MARGIN - 10);
    }
    context.restore();
  }
  function fullOf(values) {
    const every = Math.ceil(values.length / 2e4);
    const seen = values.filter((value, i) => i % every === 0 && value > 1e-4).sort();
    return seen.length < 100 ? 1 : Math.min(1, 2 * seen[Math.floor(seen.length * 0.99)]);
  }
  function asTable(panel, matrix) {
    const { entry, map, words, state: state2, store: store2 } = panel;
    const rows = entry.tokens[map.rows];
    const columns = entry.tokens[map.columns];
    const shown = rows.length <= TABLE && columns.length <= TABLE ? [...rows.keys()] : [state2.row ?? rows.length - 1];
    const open = panel.host.querySelector("details")?.open;
    const details = h("details", { className: "table", open }, h("summary", {}, words.table));
    details.addEventListener("toggle", () => {
      if (!details.open || details.children.length > 1) return;
      const head = h("tr", {}, h("th", { scope: "col" }, words.token));
      for (const token of columns) head.append(h("th", { scope: "col" }, tokenElement(token)));
      const body = shown.map((row) => {
        const line = h("tr", {}, h("th", { scope: "row" }, tokenElement(rows[row])));
        for (const weight of matrix.row(row)) {
          line.append(h("td", {}, format(weight, store2.payload.rounding)));
        }
        return line;
      });
      details.append(h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
    });
    return details;
  }

  // src/scores.ts
  function part(values, token, size) {
    return values.subarray(token * size, (token + 1) * size);
  }
  function termOf(scores, head, row, column) {
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
  function explain(scores, head, row) {
    const columns = scores.key[head].length / scores.size;
    const all = [...Array(columns).keys()];
    const seen = all.filter((column) => !scores.hidden[row * columns + column]);
    const terms = seen.map((column) => termOf(scores, head, row, column));
    const largest = Math.max(...terms.map((term) => term.score));
    const total = terms.reduce((sum, term) => sum + Math.exp(term.score - largest), 0);
    return { terms, largest, total };
  }
  function unturned(values, scores, token) {
    const { turned, cos, sin } = scores;
    if (!cos || !sin) return values;
    const half = turned / 2;
    const before = Float32Array.from(values);
    for (let i = 0; i < half; i++) {
      const [c, s] = [cos[token * turned + i], sin[token * turned + i]];
      const norm = c * c + s * s;
      before[i] = (values[i] * c + values[i + half] * s) / norm;
      before[i + half] = (values[i + half] * c - values[i] * s) / norm;
    }
    return before;
  }

  // src/neurons.ts
  var MOST = 60;
  var HEIGHT = 16;
  async function drawNeurons(panel) {
    const { host, store: store2, entry, map, layer, head, words, state: state2, set: set2 } = panel;
    const scores = await store2.scores(map, layer);
    if (!panel.isCurrent()) return;
    const rows = entry.tokens[map.rows];
    const row = state2.row ?? rows.length - 1;
    const chooser = select(
      words.looking,
      rows.map((token, i) => [String(i), `${i} ${tokenLabel(token)}`]),
      String(row),
      (value) => set2({ row: Number(value) })
    );
    const top = [h("p", { className: "hint" }, words.neuronsHint)];
    if (!scores) {
      const why = store2.payload.scoresLeftOut ? words.scoresLeftOut : words.noScores;
      renew(host, ...top, h("p", {}, why));
      return;
    }
    const { terms, largest, total } = explain(scores, head, row);
    if (!terms.length) {
      renew(host, ...top, h("div", { className: "controls" }, chooser), h("p", {}, words.seesNothing));
      return;
    }
    const shown = [...terms].sort((a, b) => b.score - a.score).slice(0, MOST);
    const chosen = shown.find((term) => term.column === state2.column) ?? shown[0];
    shown.sort((a, b) => a.column - b.column);
    renew(
      host,
      ...top,
      h("div", { className: "controls" }, chooser, scores.turned ? turnBox(panel) : null),
      formula(panel, scores, chosen, largest, total),
      shown.length < terms.length ? h("p", { className: "hint" }, `${words.many} ${terms.length}`) : "",
      table(panel, scores, row, shown, largest, total)
    );
  }
  function turnBox({ words, state: state2, set: set2 }) {
    return h(
      "label",
      { title: words.turnedNote },
      h("input", {
        type: "checkbox",
        checked: state2.before,
        onchange: () => set2({ before: !state2.before })
      }),
      ` ${words.unturned}`
    );
  }
  var short = (value) => Math.abs(value) >= 1e3 ? value.toExponential(2) : value.toFixed(3);
  function formula({ entry, map, words }, scores, term, largest, total) {
    const weight = Math.exp(term.score - largest) / total;
    const parts = [
      `q\xB7k = \u03A3 q\u1D62k\u1D62 = ${short(term.sum)}`,
      `${short(term.sum)} \xD7 ${scores.scale.toPrecision(4)} = ${short(term.sum * scores.scale)}`,
      scores.cap !== null && `${scores.cap} \xB7 tanh(\u2026 / ${scores.cap}) = ${short(term.scaled)}`,
      scores.bias && `${short(term.scaled)} + ${short(term.bias)} = ${short(term.score)}`,
      `exp(${short(term.score)}) / \u03A3 exp = ${weight.toFixed(5)}`
    ];
    return h(
      "p",
      { className: "formula" },
      `${words.formulaFor} `,
      tokenElement(entry.tokens[map.columns][term.column]),
      ": ",
      h("code", {}, parts.filter(Boolean).join(";  "))
    );
  }
  function table(panel, scores, row, terms, largest, total) {
    const { entry, map, head, words, set: set2, state: state2, store: store2 } = panel;
    const shownPart = (states, token) => {
      const values = part(states, token, scores.size);
      return state2.before ? unturned(values, scores, token) : values;
    };
    const query = shownPart(scores.query[head], row);
    const keys = terms.map((term) => shownPart(scores.key[head], term.column));
    const products = terms.map(
      (term, i) => state2.before ? query.map((value, j) => value * keys[i][j]) : term.products
    );
    const most = (all) => Math.max(...all.map((one) => Math.max(...one.map(Math.abs))));
    const largestState = most([query, ...keys]);
    const largestProduct = most(products);
    const titles = ["k", "q \xD7 k", words.sum, words.scale, words.bias, words.softmax];
    const columns = titles.filter((title) => title !== words.bias || scores.bias);
    return h(
      "div",
      { className: "neurons" },
      h("div", { className: "query" }, "q ", tokenElement(entry.tokens[map.rows][row]), " ", strip(query, largestState)),
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, h("th", {}, words.token), ...columns.map((title) => h("th", {}, title)))),
        h(
          "tbody",
          {},
          ...terms.map(
            (term, i) => h(
              "tr",
              {
                className: term.column === state2.column ? "chosen" : "",
                onclick: () => set2({ row, column: term.column })
              },
              h("th", { scope: "row" }, tokenElement(entry.tokens[map.columns][term.column])),
              h("td", {}, strip(keys[i], largestState)),
              h("td", {}, strip(products[i], largestProduct)),
              h("td", {}, short(term.sum)),
              h("td", {}, short(term.scaled)),
              scores.bias && h("td", {}, short(term.bias)),
              h(
                "td",
                {
                  className: "weight",
                  style: { "--strength": String(Math.exp(term.score - largest) / total) }
                },
                format(Math.exp(term.score - largest) / total, store2.payload.rounding)
              )
            )
          )
        )
      )
    );
  }
  function strip(values, largest) {
    const canvas = h("canvas", {
      role: "img",
      "aria-label": [...values.slice(0, 8)].map((value) => value.toFixed(2)).join(" "),
      title: [...values].map((value, i) => `${i}: ${value.toFixed(4)}`).join("\n")
    });
    const width = Math.max(1, Math.min(6, Math.floor(256 / values.length)));
    const context = sharpen(canvas, width * values.length, HEIGHT);
    values.forEach((value, i) => {
      context.fillStyle = signColor(value, largest);
      context.fillRect(i * width, 0, width, HEIGHT);
    });
    return canvas;
  }

  // src/state.ts
  var VIEWS = ["lines", "grid", "map", "neurons", "time"];
  function initial(payload2) {
    const maps = payload2.entries[0].maps;
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
      before: false
    };
  }
  function mapOf(entry, kind) {
    return entry.maps.find((map) => map.kind === kind) ?? entry.maps[0];
  }
  function shownEntries({ entry, beside }, payload2) {
    return [entry, beside].filter((number) => number !== null).map((number) => payload2.entries[number]);
  }
  function within(state2, payload2) {
    const shown = shownEntries(state2, payload2);
    const { kind } = mapOf(shown[0], state2.kind);
    const most = (count) => Math.max(...shown.map((entry) => count(entry, mapOf(entry, kind))));
    const clip = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const place = (value, count) => value !== null && value < count && value >= 0 ? value : null;
    return {
      ...state2,
      kind,
      layer: clip(state2.layer, most((_, map) => map.layers)),
      head: clip(state2.head, most((_, map) => map.heads)),
      row: place(state2.row, most(({ tokens }, map) => tokens[map.rows].length)),
      column: place(state2.column, most(({ tokens }, map) => tokens[map.columns].length)),
      step: clip(state2.step, Math.max(most(steps), 1)),
      view: state2.view === "time" && !steps(shown[0]) ? "lines" : state2.view
    };
  }
  function steps(entry) {
    if (entry.writtenFrom === null) return 0;
    return (entry.tokens.target ?? entry.tokens.source).length - entry.writtenFrom;
  }
  function pressed(key, state2) {
    const number = Number(key);
    if (number >= 1 && number <= VIEWS.length) return { view: VIEWS[number - 1] };
    if (state2.view === "grid" && key.startsWith("Arrow")) return null;
    if (state2.view === "time" && (key === "ArrowDown" || key === "ArrowUp")) return null;
    switch (key) {
      case "ArrowRight":
        return state2.view === "time" ? { step: state2.step + 1 } : { layer: state2.layer + 1 };
      case "ArrowLeft":
        return state2.view === "time" ? { step: state2.step - 1 } : { layer: state2.layer - 1 };
      case "ArrowDown":
        return { head: state2.head + 1, heads: null };
      case "ArrowUp":
        return { head: state2.head - 1, heads: null };
      case "Escape":
        return { row: null, column: null };
      default:
        return null;
    }
  }

  // src/time.ts
  var PACE = 700;
  var player = null;
  async function drawTime(panel) {
    const { host, entry, store: store2, state: state2, words, set: set2, layer } = panel;
    const own = entry.tokens.target ? "target" : "source";
    const count = steps(entry);
    const from = entry.writtenFrom;
    const written = from + Math.min(state2.step, count - 1);
    const row = written - 1;
    const texts = await Promise.all(
      entry.maps.filter((map) => map.rows === own).map(async (map) => {
        const heads = shownHeads({ ...panel, map }, allHeads(map));
        if (!heads.length) return null;
        const mean = await store2.mean(entry, map, Math.min(layer, map.layers - 1), heads);
        return { map, weights: mean.row(row) };
      })
    );
    if (!panel.isCurrent()) return;
    const isLast = state2.step >= count - 1;
    if (player === entry && isLast) player = null;
    const move = (step) => set2({ step });
    renew(
      host,
      h("p", { className: "hint" }, words.timeHint),
      chips(panel, allHeads(panel.map)),
      h(
        "div",
        { className: "controls" },
        h("button", { onclick: play }, player === entry ? words.stop : words.play),
        slider(words.step, [0, count - 1, 1], state2.step, `${state2.step + 1} / ${count}`, move),
        h("span", { className: "written" }, `${words.writes} `, tokenElement(entry.tokens[own][written]))
      ),
      candidates(panel, written - from),
      ...texts.map((text) => {
        if (!text) return "";
        const tokens = entry.tokens[text.map.columns].slice(0, text.map.columns === own ? row + 1 : void 0);
        return h(
          "section",
          {},
          h("h3", {}, text.map.columns === own ? words.own : words.source),
          h(
            "p",
            { className: "read" },
            ...tokens.map(
              (token, i) => h(
                "span",
                {
                  className: "weight",
                  style: { "--strength": text.weights[i].toFixed(4) },
                  "data-weight": format(text.weights[i], store2.payload.rounding)
                },
                tokenElement(token),
                h("small", {}, format(text.weights[i], store2.payload.rounding))
              )
            )
          )
        );
      })
    );
    if (player === entry) window.setTimeout(goOn, PACE);
    function goOn() {
      if (panel.isCurrent() && player === entry) move(state2.step + 1);
    }
    function play() {
      player = player === entry ? null : entry;
      set2(isLast ? { step: 0 } : {});
    }
  }
  function probabilities({ logits, others }, temperature) {
    const powers = logits.map((logit) => Math.exp((logit - logits[0]) / temperature));
    const rest = others.map(([logit, count]) => count * Math.exp((logit - logits[0]) / temperature));
    const total = [...powers, ...rest].reduce((sum, power) => sum + power, 0);
    return powers.map((power) => power / total);
  }
  function candidates({ entry, state: state2, words, set: set2 }, step) {
    const next = entry.writtenBy[step];
    if (!next) return null;
    const shares = probabilities(next, state2.temperature);
    const chosen = entry.tokens.target ?? entry.tokens.source;
    const written = chosen[entry.writtenFrom + step];
    return h(
      "section",
      { className: "candidates" },
      h("h3", {}, words.candidates),
      slider(
        words.temperature,
        [0.1, 2, 0.1],
        state2.temperature,
        state2.temperature.toFixed(1),
        (temperature) => set2({ temperature })
      ),
      h(
        "ol",
        {},
        ...next.tokens.map(
          (token, i) => h(
            "li",
            { className: token === written ? "taken" : "", style: { "--share": shares[i].toFixed(4) } },
            tokenElement(token),
            h("span", { className: "share" }),
            h("output", {}, `${(100 * shares[i]).toFixed(1)} %`)
          )
        )
      )
    );
  }

  // src/main.ts
  var PATIENCE = 300;
  var DRAW = {
    lines: drawLines,
    grid: drawGrid,
    map: drawMap,
    neurons: drawNeurons,
    time: drawTime
  };
  var textOf = (id) => document.getElementById(id)?.textContent ?? null;
  var payload = JSON.parse(textOf("payload"));
  var store = new Store(payload, textOf);
  var app = document.getElementById("app");
  var header = h("header", {});
  var panels = h("main", {});
  var status = h("p", { className: "status", role: "status", "aria-live": "polite" });
  app.append(header, panels, status);
  var state = initial(payload);
  var language = navigator.language.startsWith("zh") ? "zh" : "en";
  var drawing = 0;
  function set(change) {
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
    const most = (name) => Math.max(...shownEntries(state, payload).map((one) => mapOf(one, state.kind)[name]));
    const named = payload.entries.map((one, i) => [String(i), nameOf(one)]);
    const number = (value, count, label2, change) => slider(label2, [0, count - 1, 1], value, `${value}`, change);
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
          ...VIEWS.filter((view) => view !== "time" || steps(entry)).map(
            (view) => h(
              "button",
              { "aria-pressed": String(state.view === view), onclick: () => set({ view }) },
              words[view]
            )
          )
        ),
        h("button", { className: "quiet", onclick: changeTheme }, words.theme),
        h("button", { className: "quiet", onclick: changeLanguage }, words.language)
      ),
      h(
        "div",
        { className: "bar" },
        payload.entries.length > 1 && select(words.show, named, String(state.entry), (value) => set({ entry: Number(value) })),
        payload.entries.length > 1 && select(
          words.beside,
          [["", words.none], ...named],
          String(state.beside ?? ""),
          (value) => set({ beside: value === "" ? null : Number(value) })
        ),
        entry.maps.length > 1 && h(
          "span",
          { className: "kinds", role: "group" },
          ...entry.maps.map(
            ({ kind }) => h(
              "button",
              {
                "aria-pressed": String(kind === map.kind),
                onclick: () => set({ kind, row: null, column: null })
              },
              words[kind]
            )
          )
        ),
        state.view !== "grid" && number(state.layer, most("layers"), words.layer, (layer) => set({ layer })),
        (state.view === "map" || state.view === "neurons") && number(state.head, most("heads"), words.head, (head) => set({ head }))
      )
    );
  }
  function nameOf({ title, tokens }) {
    if (payload.entries.length < 2) return title;
    return `${title}: ${(tokens.source ?? []).slice(0, 8).join(" ").slice(0, 48)}`;
  }
  function exactness(words) {
    const { error, name } = payload.rounding;
    if (name === "linear") return error.toPrecision(1);
    return `${error.toPrecision(1)}${words.comma}${words.small} ${name === "root" ? 4e-4 : 1e-3}`;
  }
  function hints(words) {
    const { view } = state;
    if (window.matchMedia("(pointer: coarse)").matches) return view === "lines" ? words.touch : "";
    const views = VIEWS.length - (steps(payload.entries[state.entry]) ? 0 : 1);
    const moves = view === "grid" ? [] : view === "time" ? [words.keyStep] : [words.keyLayer, words.keyHead];
    return `${words.keys} ${[...moves, `1\u2013${views} ${words.keyView}`, words.keyUnpin].join(words.comma)}`;
  }
  function drawPanels(done) {
    const current = ++drawing;
    const words = LANGUAGES[language];
    const help = `${hints(words) && `${hints(words)}${words.period} `}${words.exact} ${exactness(words)}${words.period}`;
    let isSaid = false;
    const entries = state.beside === null ? [state.entry] : [state.entry, state.beside];
    panels.className = entries.length > 1 ? "two" : "";
    while (panels.children.length > entries.length) panels.lastElementChild?.remove();
    while (panels.children.length < entries.length) {
      panels.append(h("section", { className: "panel" }, h("h2", {}), h("div", { className: "view" })));
    }
    entries.forEach((number, i) => {
      const entry = payload.entries[number];
      const map = mapOf(entry, state.kind);
      const [heading, host] = panels.children[i].children;
      const own = within({ ...state, entry: number, beside: null }, payload);
      heading.textContent = [nameOf(entry), ...differences(own)].join(" \xB7 ");
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
        isCurrent: () => current === drawing
      }).then(() => {
        if (current !== drawing) return;
        if (!isSaid) status.textContent = help;
        host.removeAttribute("aria-busy");
        done();
        document.body.dataset.drawn = String(current);
      }).catch((error) => {
        host.textContent = error.message;
      });
    });
  }
  function differences(own) {
    const words = LANGUAGES[language];
    return [
      own.kind !== state.kind ? words[own.kind] : "",
      own.layer !== state.layer ? `${words.layer} ${own.layer}` : "",
      own.head !== state.head ? `${words.head} ${own.head}` : ""
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
  function focusPath() {
    const path = [];
    let element = document.activeElement;
    if (!element || !app.contains(element)) return null;
    while (element && element !== app) {
      path.unshift([...element.parentElement.children].indexOf(element));
      element = element.parentElement;
    }
    return path;
  }
  function restoreFocus(path) {
    if (!path) return;
    let element = app;
    for (const place of path) element = element?.children[place];
    if (element instanceof HTMLElement && element !== document.activeElement) {
      element.focus({ preventScroll: true });
    }
  }
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("select, input[type=range]") && event.key.startsWith("Arrow")) return;
    const change = pressed(event.key, state);
    if (!change || change.view === "time" && !steps(payload.entries[state.entry])) return;
    event.preventDefault();
    if (event.key === "Escape") document.activeElement.blur();
    set(change);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("resize", draw);
  draw();
})();
