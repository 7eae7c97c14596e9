(() => {
  "use strict";
  const { axes, cases, totals, devices } = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // --- words ---

  const three = (x) => (x >= 100 ? Math.round(x).toLocaleString("en-US") : x.toFixed(x >= 10 ? 1 : 2));
  const seconds = (s) => (s >= 1 ? `${three(s)} s` : s >= 1e-3 ? `${three(s * 1e3)} ms` : `${three(s * 1e6)} µs`);
  const bytes = (b) =>
    b >= 2 ** 30 ? `${three(b / 2 ** 30)} GiB` : b >= 2 ** 20 ? `${three(b / 2 ** 20)} MiB` : `${three(b / 2 ** 10)} KiB`;
  const times = (x) => `${x >= 10 ? x.toFixed(1) : x.toFixed(2)}x`;
  const percent = (x) => `${(100 * x).toFixed(1)}%`;
  // An estimate is a value and the ends of its interval, or a value and why there is none.
  const hasInterval = (estimate) => estimate.length === 3;
  const numbers = (estimate) => estimate.filter(Number.isFinite);
  const interval = (estimate) => {
    const [value, ...ends] = estimate;
    return `${times(value)} ${hasInterval(estimate) ? `[${ends.map(times).join(", ")}]` : `(${ends[0]})`}`;
  };

  // Names and messages come from the files of others. They only become text nodes, never markup.
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const table = (headings, rows) =>
    make("table", {},
      make("thead", {}, make("tr", {}, ...headings.map((h, i) => make("th", i ? { scope: "col", class: "num" } : { scope: "col" }, h)))),
      make("tbody", {}, ...rows.map((row) =>
        make("tr", {}, ...row.map((cell, i) => make(i ? "td" : "th", i ? { class: "num" } : { scope: "row" }, cell ?? ""))))));

  // --- filters ---

  const chosen = {};
  let visible = cases;
  const isVisible = (one) =>
    Object.entries(chosen).every(([key, value]) =>
      !value || (key === "query" ? value.split(/\s+/).every((word) => one.search.includes(word)) : one[key] === value));

  const rowsById = new Map($$("#table tbody tr").map((tr) => [Number(tr.dataset.id), tr]));
  function filter() {
    visible = cases.filter(isVisible);
    const ids = new Set(visible.map((one) => one.id));
    for (const [id, tr] of rowsById) tr.hidden = !ids.has(id);
    $("#count").textContent = `${visible.length} of ${cases.length} cases`;
    drawAll();
  }
  let waiting;
  const soon = (what, ms) => { clearTimeout(waiting); waiting = setTimeout(what, ms); };
  const form = $("#filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  $("#query").addEventListener("input", (event) => {
    chosen.query = event.target.value.trim().toLowerCase();
    soon(filter, 120);
  });
  for (const select of $$("select[data-filter]"))
    select.addEventListener("change", () => { chosen[select.dataset.filter] = select.value; filter(); });
  form.addEventListener("reset", () => { for (const key in chosen) delete chosen[key]; setTimeout(filter); });

  // --- sorting: rows without a value stay last ---

  const body = $("#table tbody");
  const headings = $$("#table thead th");
  function sort(column) {
    const heading = headings[column];
    const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headings.forEach((h) => h.setAttribute("aria-sort", h === heading ? direction : "none"));
    const sign = direction === "ascending" ? 1 : -1;
    const isNumber = heading.classList.contains("num");
    const keyed = [...body.rows].map((tr) => {
      const cell = tr.cells[column];
      const text = cell.textContent.trim();
      return { tr, key: isNumber ? ("key" in cell.dataset ? Number(cell.dataset.key) : null) : text || null };
    });
    keyed.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      return sign * (isNumber ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true }));
    });
    body.append(...keyed.map(({ tr }) => tr));
    const name = heading.textContent.trim();
    $("#announcement").textContent = `sorted by ${name}, ${direction}`;
  }
  $("#table thead").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-column]");
    if (button) sort(Number(button.dataset.column));
  });

  // --- charts ---

  const style = { background: "transparent", fontFamily: "inherit", fontSize: "12px", overflow: "visible" };
  const isNarrow = () => innerWidth <= 640;
  const varying = () => axes.filter(
    (key) => new Set(visible.map((one) => one[key])).size > 1);
  function cut(text) {
    const most = isNarrow() ? 17 : 36;
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  }
  function labels(some, keys) {
    const parts = keys ?? varying().filter((key) => new Set(some.map((one) => one[key])).size > 1);
    return new Map(some.map((one) => [one.id, cut([one.model, ...parts.map((key) => one[key])].join(" "))]));
  }
  const margin = (texts) => Math.min(isNarrow() ? 128 : 260, 14 + 6.7 * Math.max(4, ...[...texts].map((t) => t.length)));

  function plot(figure, options, { label, rowHeight = 16, rows }) {
    const box = $(`[data-chart="${figure}"]`);
    const width = Math.max(260, box.clientWidth - (box.classList.contains("long") ? 18 : 2));
    const height = rows === undefined ? options.height : rows * rowHeight + (options.marginTop ?? 30) + (options.marginBottom ?? 36);
    const drawn = Plot.plot({ ...options, width, height, style, ariaLabel: label });
    const svg = drawn.tagName.toLowerCase() === "svg" ? drawn : $("svg", drawn);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${label}. The table below has the same figures.`);
    return drawn;
  }
  // Ticks that are easy to read as factors, within the range that is shown.
  const factors = (numbers, most = 9) => {
    const low = Math.min(1, ...numbers), high = Math.max(1, ...numbers);
    const fine = [0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5].filter((x) => x >= low && x <= high);
    if (high / low < 2.5 && fine.length <= most + 2) return fine;
    for (const digits of [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
      const found = [];
      for (let k = -4; k <= 4; k += 1) for (const digit of digits) found.push(+(digit * 10 ** k).toPrecision(3));
      const inside = found.filter((x) => x >= low && x <= high);
      if (inside.length <= most || digits.length === 1) return inside;
    }
    return [1];
  };
  const factor = (x) => String(+x.toPrecision(3));
  const empty = (text) => make("p", { class: "muted" }, text);
  function legend(...parts) {
    const swatch = ([color, text]) => {
      const i = make("i", { "aria-hidden": "true" });
      i.style.background = color;
      return make("span", {}, i, text);
    };
    return make("div", { class: "legend" }, ...parts.map(swatch));
  }

  const settings = {};
  function control(figure, key, text, options) {
    // A select whose choice is kept; options as [value, text].
    const id = `${figure}-${key}`;
    const box = $(`#${figure} [data-controls]`);
    let select = $(`#${id}`, box);
    if (options.length && !options.some(([value]) => value === settings[id])) settings[id] = options[0][0];
    if (options.length < 2) { select?.closest("label").remove(); return settings[id]; }
    if (!select) {
      select = make("select", { id });
      box.append(make("label", {}, text, select));
      select.addEventListener("change", () => { settings[id] = select.value; draw(figure); });
    }
    select.replaceChildren(...options.map(([value, name]) => make("option", { value }, name)));
    select.value = settings[id];
    return settings[id];
  }
  const values = (some, key) => [...new Set(some.map((one) => one[key]))];
  function ofOneKind(figure, some) {
    // Charts of ratios show one backend, precision and device at a time, in one mode or in both.
    const kind = control(figure, "kind", "Of", values(some, "kind").map((k) => [k, k]));
    const mine = some.filter((one) => one.kind === kind);
    const modes = values(mine, "mode");
    const options = modes.map((m) => [m, m]);
    const mode = control(figure, "mode", "Mode", options.length > 1 ? [...options, ["", "both"]] : options);
    return mine.filter((one) => !mode || one.mode === mode);
  }

  const charts = {
    totals(figure) {
      const rows = totals.map((one, id) => ({ ...one, id }));
      const differ = rows.some((one) => one.passing && one.all && Math.abs(Math.log(one.passing[0] / one.all[0])) > 1e-9);
      const text = (one) => cut(one.axis === one.name ? "all cases" : one.name.replaceAll("_", " "));
      const shown = rows.filter((one) => one.passing);
      const title = (one) => `${text(one)}\n${interval(one.passing)} over ${one.compared} passing cases` + (one.all ? `\n${interval(one.all)} over all ${one.comparable}` : "");
      const chart = plot(figure, {
        marginLeft: margin(shown.map(text)), marginRight: 24, marginTop: 12, marginBottom: 48,
        x: { type: "log", label: isNarrow() ? "geometric mean, 95% interval" : "speedup over eager, geometric mean with 95% interval", labelAnchor: "center", grid: true, ticks: factors(shown.flatMap((d) => numbers(d.passing)), isNarrow() ? 5 : 9), tickFormat: (x) => `${factor(x)}x` },
        y: { domain: shown.map((one) => one.id), tickFormat: (id) => text(rows[id]), label: null, tickSize: 0 },
        marks: [
          Plot.ruleX([1], { stroke: "var(--muted)" }),
          Plot.ruleY(shown.filter((d) => hasInterval(d.passing)), { y: "id", x1: (d) => d.passing[1], x2: (d) => d.passing[2], stroke: "var(--candidate)", strokeWidth: 2 }),
          differ ? Plot.dot(shown.filter((d) => d.all), { y: "id", x: (d) => d.all[0], stroke: "var(--worse)", fill: "var(--bg)", r: 4.5, strokeWidth: 1.5 }) : null,
          Plot.dot(shown, { y: "id", x: (d) => d.passing[0], fill: "var(--candidate)", r: 4.5, title, tip: true }),
        ],
      }, { label: "Speedups of groups of cases", rowHeight: 24, rows: shown.length });
      return {
        nodes: [legend(["var(--candidate)", "passing cases"], ...(differ ? [["var(--worse)", "all cases; a failed or incorrect one counts as 1.0x"]] : [])), chart],
        headings: ["Group", "Passing cases", "All cases", "Coverage"],
        rows: shown.map((d) => [text(d), interval(d.passing), d.all ? interval(d.all) : "", `${d.compared} of ${d.comparable}`]),
      };
    },

    ratios(figure) {
      const some = ofOneKind(figure, visible.filter((one) => one.passes && one.ratios));
      if (!some.length) return { nodes: [empty("No case of the filter was compared with eager.")] };
      const names = ["T", "CM", "GM"].filter((_, i) => some.some((one) => one.ratios[i] !== null));
      const only = isNarrow() ? control(figure, "ratio", "Ratio", names.map((n) => [n, n])) : "";
      const by = control(figure, "order", "Order", [["T", "by time"], ["CM", "by CPU memory"], ["GM", "by GPU memory"], ["name", "by name"]].filter(([n]) => n === "name" || names.includes(n)));
      const at = (one, name) => one.ratios[["T", "CM", "GM"].indexOf(name)];
      const sorted = [...some].sort((a, b) => by === "name" ? a.model.localeCompare(b.model) : (at(a, by) ?? Infinity) - (at(b, by) ?? Infinity));
      const text = labels(sorted);
      const meaning = { T: "T, time", CM: "CM, CPU memory", GM: "GM, GPU memory" };
      const data = sorted.flatMap((one) => names.filter((n) => !only || n === only).map((name) => ({ id: one.id, name: meaning[name], ratio: at(one, name), one }))).filter((d) => d.ratio !== null);
      const chart = plot(figure, {
        marginLeft: margin(text.values()), marginRight: 16, marginTop: 54,
        fx: { axis: null, domain: names.filter((n) => !only || n === only).map((n) => meaning[n]), label: null, padding: 0.06 },
        x: { type: "log", label: "candidate over eager", labelAnchor: "center", grid: true, ticks: factors(data.map((d) => d.ratio), only ? 5 : 6), tickFormat: factor, axis: "both" },
        y: { domain: sorted.map((one) => one.id), tickFormat: (id) => text.get(id), label: null, tickSize: 0, padding: 0.25 },
        marks: [
          Plot.axisFx({ anchor: "top", dy: -26, fontSize: 13, fontWeight: 550, label: null }),
          Plot.barX(data, { fx: "name", y: "id", x1: () => 1, x2: "ratio", fill: (d) => (d.ratio <= 1 ? "var(--candidate)" : "var(--worse)"), title: (d) => `${d.one.label}\n${d.name}: ${d.ratio.toFixed(3)}`, tip: true }),
          Plot.ruleX([1], { stroke: "var(--muted)" }),
        ],
      }, { label: `Ratios of candidate to eager, ${sorted.length} cases`, rows: sorted.length });
      return {
        nodes: [legend(["var(--candidate)", "less than eager"], ["var(--worse)", "more than eager"]), chart],
        headings: ["Case", ...names],
        rows: sorted.map((one) => [one.label, ...names.map((n) => at(one, n)?.toFixed(3))]),
        long: true,
      };
    },

    breakdown(figure) {
      const profiled = visible.filter((one) => one.shares);
      const variant = control(figure, "variant", "Variant", [["eager", "eager"], ["candidate", "the candidate"]].filter(([v]) => profiled.some((one) => one.shares[v])));
      const some = ofOneKind(figure, profiled.filter((one) => one.shares[variant]));
      if (!some.length) return { nodes: [empty("No case of the filter was profiled.")] };
      const sorted = [...some].sort((a, b) => b.shares[variant][0] - a.shares[variant][0]);
      const text = labels(sorted);
      const parts = ["active", "data movement", "idle"];
      const colors = ["var(--active)", "var(--movement)", "var(--idle)"];
      const data = sorted.flatMap((one) => parts.map((part, i) => ({ id: one.id, part, share: one.shares[variant][i], start: one.shares[variant].slice(0, i).reduce((a, b) => a + b, 0), one })));
      const chart = plot(figure, {
        marginLeft: margin(text.values()), marginRight: 20, marginTop: 30,
        x: { domain: [0, 1], label: "share of the step's wall time", labelAnchor: "center", tickFormat: (x) => `${Math.round(100 * x)}%`, axis: "both", ticks: 5 },
        y: { domain: sorted.map((one) => one.id), tickFormat: (id) => text.get(id), label: null, tickSize: 0, padding: 0.25 },
        marks: [Plot.barX(data, { y: "id", x1: "start", x2: (d) => (d.part === "idle" ? 1 : d.start + d.share), // rounded shares may not add up to exactly 1
           fill: (d) => colors[parts.indexOf(d.part)], title: (d) => `${d.one.label}\n${parts.map((p, i) => `${p} ${percent(d.one.shares[variant][i])}`).join("\n")}`, tip: true })],
      }, { label: `Active, data movement and idle shares of ${sorted.length} cases`, rows: sorted.length });
      return {
        nodes: [legend(...parts.map((part, i) => [colors[i], part])), chart],
        headings: ["Case", ...parts],
        rows: sorted.map((one) => [one.label, ...one.shares[variant].map(percent)]),
        long: true,
      };
    },

    devices(figure) {
      const ids = new Set(visible.map((one) => one.id));
      const some = devices.filter((one) => ids.has(one.id)).sort((a, b) => b.ratio[0] - a.ratio[0]);
      if (!some.length) return { nodes: [empty("No case of the filter passed on two devices at the same batch size.")] };
      const names = values(some, "device");
      const colors = new Map(names.map((name, i) => [name, ["var(--candidate)", "var(--movement)", "var(--other)", "var(--eager)"][i % 4]]));
      const text = labels(some.map((one) => cases[one.id]), varying().filter((key) => key !== "device"));
      const rows = [...text.keys()];
      const chart = plot(figure, {
        marginLeft: margin(text.values()), marginRight: 24, marginTop: 30,
        x: { type: "log", label: `times as fast as on ${some[0].base}`, labelAnchor: "center", grid: true, axis: "both", ticks: factors(some.flatMap((d) => numbers(d.ratio)), isNarrow() ? 5 : 9), tickFormat: (x) => `${factor(x)}x` },
        y: { domain: rows, tickFormat: (id) => text.get(id), label: null, tickSize: 0 },
        marks: [
          Plot.ruleX([1], { stroke: "var(--muted)" }),
          Plot.ruleY(some.filter((d) => hasInterval(d.ratio)), { y: "id", x1: (d) => d.ratio[1], x2: (d) => d.ratio[2], stroke: (d) => colors.get(d.device), strokeWidth: 2 }),
          Plot.dot(some, { y: "id", x: (d) => d.ratio[0], fill: (d) => colors.get(d.device), r: 3.5, title: (d) => `${cases[d.id].label}\n${d.device} over ${d.base}: ${interval(d.ratio)}`, tip: true }),
        ],
      }, { label: "One device against another", rows: rows.length });
      return {
        nodes: [legend(...[...colors].map(([name, color]) => [color, name])), chart],
        headings: ["Case", "Device", "Against", "Times as fast"],
        rows: some.map((d) => [cases[d.id].label, d.device, d.base, interval(d.ratio)]),
        long: true,
      };
    },

    memory(figure) {
      const measured = visible.filter((one) => one.memory);
      const what = control(figure, "what", "Memory", [["device", "GPU, peak allocated"], ["host", "CPU, peak resident"], ["unique", "CPU, unique to the process"]].filter(([key]) => measured.some((one) => one.memory[key][0] !== null)));
      // A case with a candidate also shows eager. With the model's case of eager alone, eager would be there twice.
      const beside = measured.filter((one) => one.memory[what][1] !== null);
      const some = ofOneKind(figure, (beside.length ? beside : measured).filter((one) => one.memory[what][0] !== null));
      if (!some.length) return { nodes: [empty("No case of the filter was measured.")] };
      const peak = (one) => Math.max(one.memory[what][0], one.memory[what][1] ?? 0);
      const sorted = [...some].sort((a, b) => peak(b) - peak(a));
      const text = labels(sorted);
      const data = sorted.flatMap((one) => one.memory[what].map((value, i) => ({ id: one.id, value, i, one }))).filter((d) => d.value !== null);
      const title = (d) => `${d.one.label}\neager ${bytes(d.one.memory[what][0])}` + (d.one.memory[what][1] === null ? "" : `\ncandidate ${bytes(d.one.memory[what][1])}`);
      const chart = plot(figure, {
        marginLeft: margin(text.values()), marginRight: 24, marginTop: 30,
        x: { type: "log", base: 2, label: "peak memory", labelAnchor: "center", grid: true, axis: "both", ticks: isNarrow() ? 4 : 8, tickFormat: (x) => bytes(x).replace(/\.0+ /, " ") },
        y: { domain: sorted.map((one) => one.id), tickFormat: (id) => text.get(id), label: null, tickSize: 0 },
        marks: [
          Plot.ruleY(sorted.filter((one) => one.memory[what][1] !== null), { y: "id", x1: (d) => d.memory[what][0], x2: (d) => d.memory[what][1], stroke: "var(--line)", strokeWidth: 2 }),
          Plot.dot(data, { y: "id", x: "value", fill: (d) => (d.i ? "var(--candidate)" : "var(--eager)"), r: 3.5, title, tip: true }),
        ],
      }, { label: `Peak memory of ${sorted.length} cases`, rows: sorted.length });
      return {
        nodes: [legend(["var(--eager)", "eager"], ...(beside.length ? [["var(--candidate)", "candidate"]] : [])), chart],
        headings: ["Case", "Eager", "Candidate"],
        rows: sorted.map((one) => [one.label, bytes(one.memory[what][0]), one.memory[what][1] === null ? "" : bytes(one.memory[what][1])]),
        long: true,
      };
    },

    compile(figure) {
      const some = ofOneKind(figure, visible.filter((one) => one.compile));
      if (!some.length) return { nodes: [empty("No case of the filter compiles.")] };
      const sorted = [...some].sort((a, b) => b.compile[0] - a.compile[0]);
      const text = labels(sorted);
      const knows = sorted.some((one) => one.compile[2] !== null);
      const title = (one) => `${one.label}\nfirst step ${seconds(one.compile[0])}\nits CPU time ${seconds(one.compile[1])}` + (one.compile[2] === null ? "" : `\ncompiling ${seconds(one.compile[2])}`);
      const chart = plot(figure, {
        marginLeft: margin(text.values()), marginRight: 24, marginTop: 30,
        x: { label: "seconds", labelAnchor: "center", grid: true, axis: "both", ticks: isNarrow() ? 4 : 8 },
        y: { domain: sorted.map((one) => one.id), tickFormat: (id) => text.get(id), label: null, tickSize: 0, padding: 0.25 },
        marks: [
          Plot.barX(sorted, { y: "id", x: (d) => d.compile[0], fill: "var(--candidate)", fillOpacity: 0.45, title, tip: true }),
          knows ? Plot.tickX(sorted.filter((d) => d.compile[2] !== null), { y: "id", x: (d) => d.compile[2], stroke: "var(--candidate)", strokeWidth: 2 }) : null,
          Plot.dot(sorted, { y: "id", x: (d) => d.compile[1], stroke: "var(--worse)", fill: "var(--bg)", r: 3 }),
        ],
      }, { label: `First step of ${sorted.length} compiled cases`, rows: sorted.length });
      return {
        nodes: [legend(["var(--candidate)", knows ? "first step, wall time; mark: inside the compiler" : "first step, wall time"], ["var(--worse)", "its CPU time"]), chart],
        headings: ["Case", "First step", "Its CPU time", ...(knows ? ["Inside the compiler"] : [])],
        rows: sorted.map((one) => [one.label, seconds(one.compile[0]), seconds(one.compile[1]), ...(knows ? [one.compile[2] === null ? "" : seconds(one.compile[2])] : [])]),
        long: true,
      };
    },
  };

  const tables = {};
  function draw(figure) {
    const box = $(`[data-chart="${figure}"]`);
    const made = charts[figure](figure);
    box.classList.toggle("long", Boolean(made.long));
    if (made.long) { box.tabIndex = 0; box.setAttribute("role", "group"); box.setAttribute("aria-label", `Chart: ${$(`#${figure} h2`).textContent}`); }
    box.replaceChildren(...made.nodes);
    tables[figure] = made;
    fill($(`#${figure} details.data`));
  }
  function fill(details) {
    // The table of a chart is made when it is opened.
    const made = tables[details.closest("section").id];
    details.hidden = !made?.headings;
    if (details.open && made?.headings) $(".scroll", details).replaceChildren(table(made.headings, made.rows));
  }
  $$("details.data").forEach((details) => details.addEventListener("toggle", () => fill(details)));
  const figures = $$("[data-chart]").map((box) => box.dataset.chart);
  const drawAll = () => figures.forEach(draw);

  // --- one case ---

  const dialog = $("#case");
  function quartiles(variant, one) {
    const [low, first, middle, third, high] = one.samples[variant].quartiles;
    return [variant === "eager" ? "eager" : one.backend, String(one.samples[variant].of), ...[low, first, middle, third, high].map((ms) => seconds(ms / 1e3))];
  }
  function distribution(one) {
    const variants = Object.keys(one.samples);
    const name = (variant) => (variant === "eager" ? "eager" : one.backend);
    const color = (variant) => (variant === "eager" ? "var(--eager)" : "var(--candidate)");
    // Steps of the golden ratio spread the points evenly in height, in the same way each time.
    const points = variants.flatMap((variant) => one.samples[variant].ms.map((ms, n) => ({ variant, ms, n, y: ((n + 1) * 0.618034) % 1 })));
    const boxes = variants.map((variant) => ({ variant, q: one.samples[variant].quartiles }));
    const width = Math.max(260, $("#case-body").clientWidth);
    const common = { width, style, marginLeft: 84, marginRight: 16 };
    const spread = Plot.plot({
      ...common, height: 56 + 78 * variants.length, marginBottom: 40,
      fy: { domain: variants, label: null, tickFormat: name, axis: "left", padding: 0.18 },
      y: { axis: null, domain: [0, 1] },
      x: { label: "milliseconds of a step", labelAnchor: "center", grid: true, ticks: isNarrow() ? 4 : 8 },
      marks: [
        Plot.rect(boxes, { fy: "variant", x1: (d) => d.q[1], x2: (d) => d.q[3], y1: () => 0, y2: () => 1, fill: (d) => color(d.variant), fillOpacity: 0.15 }),
        Plot.dot(points, { fy: "variant", x: "ms", y: "y", r: 2, fill: (d) => color(d.variant), fillOpacity: 0.55 }),
        Plot.ruleX(boxes, { fy: "variant", x: (d) => d.q[2], stroke: color && ((d) => color(d.variant)), strokeWidth: 2 }),
      ],
    });
    const order = Plot.plot({
      ...common, height: 190, marginBottom: 40,
      x: { label: "number of the step, in the order in which they ran", labelAnchor: "center" },
      y: { label: "ms", grid: true, nice: true },
      marks: [Plot.dot(points, { x: "n", y: "ms", r: 1.8, fill: (d) => color(d.variant), fillOpacity: 0.6 })],
    });
    for (const [svg, label] of [[spread, "Distribution of step times; box: middle half, line: median"], [order, "Step times in the order they ran"]]) {
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${label}. The quartiles are in the table below.`);
    }
    const thinned = variants.filter((v) => one.samples[v].ms.length < one.samples[v].of);
    const explained = thinned.length
      ? `Points are ${thinned.map((v) => `${one.samples[v].ms.length} of ${one.samples[v].of} steps of ${name(v)}`).join(", ")}, evenly spaced; the quartiles are over all steps.`
      : "Each point is one timed step, with the device synchronised before and after.";
    return [
      make("h3", {}, "Latency distribution"), spread, order,
      make("p", { class: "muted small" }, `${explained} Box: the middle half; line: the median.`),
      make("div", { class: "scroll" }, table(["Variant", "Steps", "Least", "Lower quartile", "Median", "Upper quartile", "Most"], variants.map((v) => quartiles(v, one)))),
    ];
  }
  function open(id) {
    const one = cases[id];
    $("#case-title").textContent = one.label;
    const copy = make("button", { type: "button", class: "quiet" }, "Copy");
    copy.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(one.command); copy.textContent = "Copied"; }
      catch { getSelection().selectAllChildren($(".command code")); copy.textContent = "Selected"; }
    });
    const parts = [
      make("p", { class: "muted" }, [one.domain.replaceAll("_", " "), one.device_name, one.outcome].filter(Boolean).join(" · ")),
      ...(one.reason ? [make("p", { class: "note" }, one.reason)] : []),
      make("div", { class: "command" }, make("code", {}, one.command), copy),
      ...(one.lines.length ? [make("div", { class: "scroll" }, table(["", "eager", ...(one.lines[0].length > 2 ? [one.backend] : [])], one.lines))] : []),
      ...(one.speedup_text ? [make("p", {}, make("strong", {}, `Speedup ${one.speedup_text}`))] : []),
      ...(one.notes.length ? [make("ul", { class: "plain" }, ...one.notes.map((note) => make("li", {}, note)))] : []),
    ];
    $("#case-body").replaceChildren(...parts);
    dialog.showModal();
    dialog.scrollTop = 0;
    if (one.samples) $("#case-body").append(...distribution(one));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]");
    if (button) open(Number(button.dataset.open));
    if (event.target === dialog) dialog.close();
  });
  $("#case-close").addEventListener("click", () => dialog.close());

  // --- the page ---

  const themeButton = $("#theme");
  const other = () => { themeButton.textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"; };
  themeButton.addEventListener("click", () => { toggleTheme(); other(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", other);
  other();
  $("#print").addEventListener("click", () => print());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar comes and goes
    width = innerWidth;
    soon(drawAll, 150);
  });
  drawAll();
})();
