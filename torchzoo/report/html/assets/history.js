(() => {
  "use strict";
  const { software, runs, series } = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // --- words ---

  const three = (x) => (x >= 100 ? Math.round(x).toLocaleString("en-US") : x.toFixed(x >= 10 ? 1 : 2));
  const seconds = (s) => (s >= 1 ? `${three(s)} s` : s >= 1e-3 ? `${three(s * 1e3)} ms` : `${three(s * 1e6)} µs`);
  const bytes = (b) =>
    b >= 2 ** 30 ? `${three(b / 2 ** 30)} GiB` : b >= 2 ** 20 ? `${three(b / 2 ** 20)} MiB` : `${three(b / 2 ** 10)} KiB`;
  const ratio = (value) => `${value.toPrecision(3)}x`;
  const count = (value) => value.toLocaleString("en-US");
  const shown = (one, value) => ({ s: seconds, bytes, ratio, count })[one.unit](value);

  // Names and messages come from the files of others. They only become text nodes, never markup.
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };

  // What is not the same in the software of two runs, as "torch 2.14.0 -> 2.15.0".
  const differences = (before, after) => {
    if (before === after) return [];
    const [was, now] = [software[before], software[after]];
    return [...new Set([...Object.keys(now), ...Object.keys(was)])]
      .filter((name) => was[name] !== now[name])
      .map((name) => `${name} ${was[name] ?? "none"} → ${now[name] ?? "none"}`);
  };
  const softwareChanges = (one) =>
    one.x.flatMap((run, at) => {
      const changed = at ? differences(runs[one.x[at - 1]][2], runs[run][2]) : [];
      return changed.length ? [{ at, text: changed.join("\n") }] : [];
    });

  // --- filters and search ---

  const chosen = {};
  const rows = new Map($$("#table tbody tr").map((tr) => [Number(tr.dataset.id), tr]));
  const isVisible = (one) =>
    Object.entries(chosen).every(([key, value]) => {
      if (!value) return true;
      if (key === "changed") return one.changes.length > 0;
      return key === "query" ? value.split(/\s+/).every((word) => one.search.includes(word)) : one[key] === value;
    });
  function filter() {
    let count = 0;
    series.forEach((one, id) => {
      const visible = isVisible(one);
      rows.get(id).hidden = !visible;
      count += visible;
    });
    $("#count").textContent = `${count} of ${series.length} series`;
  }
  let waiting;
  const form = $("#filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  $("#query").addEventListener("input", (event) => {
    chosen.query = event.target.value.trim().toLowerCase();
    clearTimeout(waiting);
    waiting = setTimeout(filter, 120);
  });
  $("#changed").addEventListener("change", (event) => { chosen.changed = event.target.checked; filter(); });
  for (const select of $$("select[data-filter]"))
    select.addEventListener("change", () => { chosen[select.dataset.filter] = select.value; filter(); });
  form.addEventListener("reset", () => { for (const key in chosen) delete chosen[key]; setTimeout(filter); });

  // --- sorting: rows without a value stay last ---

  const body = $("#table tbody");
  const headings = $$("#table thead th");
  for (const button of $$("#table thead button[data-column]"))
    button.addEventListener("click", () => {
      const column = Number(button.dataset.column);
      const heading = headings[column];
      const isNumber = heading.classList.contains("num");
      const first = isNumber ? "descending" : "ascending";
      const other = isNumber ? "ascending" : "descending";
      const direction = heading.getAttribute("aria-sort") === first ? other : first;
      headings.forEach((h) => h.setAttribute("aria-sort", h === heading ? direction : "none"));
      const sign = direction === "ascending" ? 1 : -1;
      const keyed = [...body.rows].map((tr) => {
        const cell = tr.cells[column];
        return { tr, key: isNumber ? ("key" in cell.dataset ? Number(cell.dataset.key) : null) : cell.textContent.trim() || null };
      });
      keyed.sort((a, b) => {
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
        return sign * (isNumber ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true }));
      });
      body.append(...keyed.map(({ tr }) => tr));
      $("#announcement").textContent = `sorted by ${heading.textContent.trim()}, ${direction}`;
    });

  // --- one series ---

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function chart(one) {
    const days = one.x.map((run) => new Date(runs[run][0]));
    const changes = softwareChanges(one);
    const places = one.v.flatMap((value, at) =>
      value === null ? [] : [{ at, day: days[at], value, low: one.lo[at] ?? value, high: one.hi[at] ?? value }]);
    const missing = Object.entries(one.not).map(([at, text]) => ({ day: days[at], text }));
    const name = (place) => {
      const lines = [`${runs[one.x[place.at]][1]}, ${runs[one.x[place.at]][0].slice(0, 16).replace("T", " ")}`];
      lines.push(`${shown(one, place.value)} [${shown(one, place.low)}, ${shown(one, place.high)}]`);
      return [...lines, ...changes.filter((change) => change.at === place.at).map((change) => change.text)].join("\n");
    };
    const base = places.length ? Math.min(...places.map((place) => place.low)) : 0;
    return Plot.plot({
      width: Math.max(320, Math.min(1050, innerWidth - 80)), height: 360, marginLeft: 70,
      style: { background: "transparent", color: color("--text") },
      x: { type: "utc", label: null },
      y: { label: null, tickFormat: (value) => shown(one, value), grid: true, nice: true },
      marks: [
        Plot.ruleX(changes, { x: (change) => days[change.at], stroke: color("--other"), strokeOpacity: 0.6, title: "text" }),
        Plot.ruleX(one.changes, { x: (change) => days[change.at], stroke: color("--worse"), strokeWidth: 2, strokeDasharray: "4 3" }),
        Plot.ruleX(places, { x: "day", y1: "low", y2: "high", stroke: color("--candidate"), strokeOpacity: 0.45 }),
        Plot.lineY(places, { x: "day", y: "value", stroke: color("--candidate"), strokeWidth: 1 }),
        Plot.dot(places, { x: "day", y: "value", r: 2, fill: color("--candidate") }),
        Plot.dot(missing, { x: "day", y: base, symbol: "times", stroke: color("--worse"), title: "text" }),
        Plot.tip(places, Plot.pointerX({ x: "day", y: "value", title: name, fill: color("--bg") })),
      ],
    });
  }
  const list = (heading, lines) =>
    lines.length ? [make("h3", {}, heading), make("ul", { class: "plain" }, ...lines.map((line) => make("li", {}, line)))] : [];
  const day = (one, at) => runs[one.x[at]][0].slice(0, 10);
  const dialog = $("#one");
  let open = null;
  function show(id) {
    open = id;
    const one = series[id];
    $("#one-title").textContent = one.title;
    const key = (name, text) => make("span", {}, make("i", { style: `background: var(${name})` }), text);
    $("#one-body").replaceChildren(
      make("p", { class: "muted" }, `on ${one.machine}`),
      make("div", { class: "legend" }, key("--candidate", "value with interval"), key("--worse", "change point, or no figure (×)"), key("--other", "change of software")),
      chart(one),
      ...list("Change points", one.changes.map((change) => `${day(one, change.at)}: ${change.text}; median ${change.before} before, ${change.after} after`)),
      ...list("Changes of software", softwareChanges(one).map((change) => `${day(one, change.at)}: ${change.text.replaceAll("\n", ", ")}`)),
      ...list("Runs without a figure", Object.entries(one.not).map(([at, text]) => `${day(one, at)}: ${text}`)),
    );
    if (!dialog.open) dialog.showModal();
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]");
    if (button) show(Number(button.dataset.open));
  });
  $("#one-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => { open = null; });

  const theme = $("#theme");
  const label = () => { theme.textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { window.toggleTheme(); label(); if (open !== null) show(open); });
  label();
})();
