"use strict";
(() => {
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const one = (query, within = document) => within.querySelector(query);
  const root = document.documentElement;
  for (const tools of all(".tools[hidden], .filters[hidden]")) tools.hidden = false;
  for (const details of all("details[data-closed]")) details.open = false;

  /* ---- the theme: the system's, until it is chosen here ---- */
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);
  const themeButton = one("#theme");
  function themed() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
    redraw();
  }
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("llmperf-theme", root.dataset.theme);
    } catch { /* kept for this view only */ }
    themed();
  });
  preferred.addEventListener("change", () => themed());

  /* ---- saving ---- */
  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
  /* A spreadsheet takes text that begins like a formula for one; a quote before it makes it text. */
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[\s]*[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(one(`#${id}`).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  one("#save-record")?.addEventListener("click", async () => {
    save("results.json", "application/json", await unpacked("record"));
  });
  /* A cell's number in the unit of its column where it has one, else what it says. */
  function cells(row) {
    return [...row.cells].map((c) => {
      if (c.dataset.csv !== undefined) return Number(c.dataset.csv);
      if (c.dataset.v !== undefined && c.classList.contains("n")) return Number(c.dataset.v);
      const text = c.textContent.trim();
      return text === "–" ? null : text;
    });
  }
  function saveTable(table) {
    const heads = [...table.tHead.rows[0].cells].map((c) => {
      const title = one("abbr", c)?.title ?? c.textContent.trim();
      return c.dataset.unit ? `${title} (${c.dataset.unit})` : title;
    });
    save(`${table.dataset.name}.csv`, "text/csv", csv([heads, ...[...table.tBodies[0].rows].map(cells)]));
  }
  for (const id of ["save-table", "table-csv"]) one(`#${id}`)?.addEventListener("click", () => saveTable(one("#table")));

  for (const table of all(".finding table")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "save", textContent: "CSV" });
    button.setAttribute("aria-label", `CSV: ${table.caption.textContent}`);
    button.addEventListener("click", () => saveTable(table));
    table.parentElement.after(button);
  }

  /* ---- tables that can be sorted ---- */
  const collator = new Intl.Collator(undefined, { numeric: true });
  const keyOf = (row, column) => {
    const c = row.cells[column];
    if (c === undefined) return null;
    if (c.dataset.v !== undefined) return Number(c.dataset.v);
    const text = c.textContent.trim();
    return text === "–" || text === "" ? null : text;
  };
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return collator.compare(String(a), String(b));
  }
  function sort(table, column, direction) {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [keyOf(row, column), row]);
    /* What has no value is last, whichever way. */
    keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : direction * compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  }
  for (const table of all("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sort(table, column, descending ? -1 : 1);
      });
    });
  }

  /* ---- filters ---- */
  const wanted = { text: "", verdict: "" };
  const rows = all("#table tr[data-test]");
  const sections = new Map(all("details.test").map((section) => [section.id, section]));
  const searched = new Map();
  for (const row of rows) {
    /* Names and where the test lies; a figure would match by chance. */
    searched.set(row, `${row.cells[0].textContent} ${row.dataset.at}`.toLowerCase());
  }
  const chips = all("[data-verdict]").map((span) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = span.className;
    button.dataset.verdict = span.dataset.verdict;
    button.textContent = span.textContent;
    button.setAttribute("aria-pressed", "false");
    span.replaceWith(button);
    button.addEventListener("click", () => {
      wanted.verdict = wanted.verdict === button.dataset.verdict ? "" : button.dataset.verdict;
      filter();
      if (button.closest(".overview") && wanted.verdict) hold(one("#tests"));
    });
    return button;
  });
  function filter() {
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = searched.get(row);
      const fits = (!wanted.verdict || row.dataset.is === wanted.verdict) && words.every((word) => text.includes(word));
      row.hidden = !fits;
      const section = sections.get(row.dataset.test);
      if (section) section.hidden = !fits;
      count += fits;
    }
    for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.verdict === wanted.verdict));
    one("#shown").textContent = count === rows.length ? `${rows.length} tests` : `${count} of ${rows.length} tests`;
  }
  const field = one("#filter");
  field.addEventListener("input", () => {
    wanted.text = field.value;
    filter();
  });
  filter();

  /* ---- links to a place that is closed or filtered away ---- */
  /* Where a link has led stays in view while charts above it are drawn, until the reader moves on. */
  let held = null;
  function settle() {
    if (!held) return;
    held.place.scrollIntoView({ block: "start", behavior: "instant" });
    held.top = scrollY;
    held.height = root.scrollHeight;
  }
  function hold(place) {
    held = { place };
    root.classList.add("held");
    settle();
  }
  function release() {
    held = null;
    root.classList.remove("held");
  }
  for (const moved of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(moved, release, { passive: true });
  /* By a scroll bar, too; a page that became shorter is moved by the browser. */
  addEventListener("scroll", () => {
    if (held && Math.abs(scrollY - held.top) > 2 && root.scrollHeight === held.height) release();
  }, { passive: true });
  new ResizeObserver(settle).observe(document.body);
  function reveal() {
    let place;
    try {
      place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch {
      return;
    }
    if (!place) return;
    if (place.hidden) {
      wanted.text = wanted.verdict = field.value = "";
      filter();
    }
    for (let e = place; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    for (const rest of all(":scope > details.rest", place)) rest.open = true;
    hold(place);
    if (place.matches("details")) one("summary", place).focus({ preventScroll: true, focusVisible: false });
  }
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    /* The same link again changes no hash. */
    const link = event.target.closest?.('a[href^="#"]:not([href^="#m-"])');
    if (link && link.hash === location.hash) reveal();
  });
  one("#open-all")?.addEventListener("click", () => {
    for (const details of [...all("details.sections"), ...sections.values()]) details.open = true;
  });
  one("#close-all")?.addEventListener("click", () => sections.forEach((section) => (section.open = false)));

  /* ---- definitions ---- */
  const panel = one("#definition");
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#m-"]');
    const row = link && document.getElementById(link.hash.slice(1));
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || !panel.showPopover) return;
    event.preventDefault();
    const titles = all("thead th", row.closest("table")).map((c) => c.textContent);
    const facts = [...row.cells].slice(1).map((c, n) => [titles[n + 1], c.textContent]);
    const measured = all(":scope > span", one("#measured")).map((part) => part.textContent.trim().replace(/\s+/g, " "));
    facts.push(["Measured", measured.join("; ")]);
    one("h2", panel).textContent = row.cells[0].textContent;
    one("dl", panel).replaceChildren(
      ...facts.flatMap(([title, text]) => {
        const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
        dt.textContent = title;
        dd.textContent = text;
        return [dt, dd];
      }),
    );
    panel.showPopover();
    panel.focus();
    panel.addEventListener("toggle", () => link.isConnected && document.activeElement === document.body && link.focus(), { once: true });
  });
  one("a", panel).addEventListener("click", () => panel.hidePopover());

  /* ---- charts ---- */
  let given = { charts: {} };
  let figures = [];
  let library;
  const loaded = () =>
    (library ??= unpacked("library").then((text) => {
      const script = document.createElement("script");
      script.textContent = text;
      document.head.append(script);
      if (!window.llmperfCharts) throw new Error("the library of the charts did not start");
    }));
  const expand = ([fields, ...values]) => values.map((row) => Object.fromEntries(fields.map((name, n) => [name, row[n]])));
  function datasets(chart) {
    return Object.fromEntries(Object.entries(chart.data).map(([name, table]) => [name, expand(table)]));
  }
  const views = new Map();
  async function draw(figure, dark = isDark()) {
    const plot = one(".plot", figure);
    const wide = Math.floor(plot.clientWidth) || 640;
    const state = `${dark} ${wide}`;
    if (plot.dataset.as === state) return;
    plot.dataset.as = state;
    try {
      await loaded();
      const chart = given.charts[figure.id];
      const { rows, ...extra } = datasets(chart);
      const spec = llmperfCharts.spec(given.templates[chart.template], { params: chart.params, rows, extra }, wide);
      const target = document.createElement("div");
      /* The figure says what it shows; every mark by itself would say it a hundred times. */
      const config = { ...given.themes[dark ? "dark" : "light"], aria: false };
      const result = await llmperfCharts.draw(target, spec, config);
      if (plot.dataset.as !== state) return result.finalize();
      views.get(figure)?.finalize();
      views.set(figure, result);
      target.ariaHidden = "true";
      one(".vega-bindings", target)?.remove();
      plot.replaceChildren(target);
      plot.dataset.state = "drawn";
    } catch (error) {
      plot.dataset.state = "failed";
      plot.textContent = `This chart cannot be drawn here (${error.message}). Its data is in the table.`;
    }
  }
  function redraw() {
    for (const figure of figures) if (one(".plot", figure).dataset.as) draw(figure);
  }
  const drawAll = async (dark = isDark()) => {
    await ready;
    await Promise.all(figures.map((figure) => draw(figure, dark)));
  };

  function tool(label, name, action) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.setAttribute("aria-label", `${label}: ${name}`);
    button.addEventListener("click", () => action(button));
    return button;
  }
  /* What only a drawing needs: where a label lies, what it says, how far an axis reaches, in which order. */
  const INTERNAL = new Set(["align", "chars", "label", "lane", "note", "order", "room", "shade"]);
  const UNITS = [
    ["tokens_per_s", "tokens/s"], ["tokens_per_j", "tokens/J"], ["j_per_token", "J/token"], ["tflop_per_s", "TFLOP/s"],
    ["flop_per_b", "FLOP/B"], ["tb_per_s", "TB/s"], ["gb_per_s", "GB/s"], ["mb_per_s", "MB/s"], ["per_s", "1/s"],
    ["percent", "%"], ["mhz", "MHz"], ["billions", "billions"], ["kb", "kB/token"], ["tb", "TB"], ["gb", "GB"],
    ["mb", "MB"], ["kj", "kJ"], ["mj", "mJ"], ["ms", "ms"], ["us", "µs"], ["w", "W"], ["j", "J"], ["s", "s"],
  ];
  function headOf(name) {
    const [end, unit] = UNITS.find(([end]) => name === end || name.endsWith(`_${end}`)) ?? [];
    if (!unit) return name === "seconds" ? "time (s)" : name.replaceAll("_", " ");
    return `${name === end ? "value" : name.slice(0, -end.length - 1).replaceAll("_", " ")} (${unit})`;
  }
  /* A dataset as a table for a reader: heads with units, and what was measured. */
  function presented([fields, ...values]) {
    const kept = fields.map((name, n) => [name, n]).filter(([name]) => !INTERNAL.has(name));
    return [kept.map(([name]) => headOf(name)), ...values.map((row) => kept.map(([, n]) => row[n]))];
  }
  function tableOf(chart) {
    const box = document.createElement("div");
    box.className = "wide";
    box.tabIndex = 0;
    for (const [name, data] of Object.entries(chart.data)) {
      const [fields, ...values] = presented(data);
      if (!values.length || !fields.length) continue;
      const table = document.createElement("table");
      table.createCaption().textContent = name === "rows" ? chart.title : `${chart.title}: ${name}`;
      const head = table.createTHead().insertRow();
      for (const text of fields) {
        const th = document.createElement("th");
        th.scope = "col";
        th.textContent = text;
        head.append(th);
      }
      const body = table.createTBody();
      for (const value of values) {
        const row = body.insertRow();
        for (const item of value) {
          const td = row.insertCell();
          td.textContent = item ?? "–";
          if (typeof item === "number") td.className = "n";
        }
      }
      box.append(table);
    }
    return box;
  }
  function toolsOf(figure) {
    const chart = given.charts[figure.id];
    const name = `${(figure.closest(".test, .finding")?.id ?? "chart").replace(/^(test|finding)-/, "")}-${chart.template}`;
    const tools = document.createElement("p");
    tools.className = "tools";
    const table = tool("Table", chart.title, (button) => {
      const shown = one(":scope > .wide", figure);
      if (shown) shown.remove();
      else figure.append(tableOf(chart));
      button.setAttribute("aria-expanded", String(!shown));
    });
    table.setAttribute("aria-expanded", "false");
    tools.append(
      table,
      tool("CSV", chart.title, () => save(`${name}.csv`, "text/csv", csv(presented(chart.data.rows)))),
      tool("JSON", chart.title, () => save(`${name}.json`, "application/json", JSON.stringify(datasets(chart), null, 1))),
    );
    return tools;
  }
  /* The figures of a test; what they show is in its tables as well, so that only a script needs them. */
  function figureOf(id) {
    const { title, description, height } = given.charts[id];
    const make = (tag, fields, ...children) => {
      const element = Object.assign(document.createElement(tag), fields);
      element.append(...children);
      return element;
    };
    const plot = make("div", { className: "plot", role: "img" });
    plot.setAttribute("aria-labelledby", `${id}-of`);
    plot.style.minHeight = `${height}px`;
    return make("figure", { className: "chart", id },
      make("figcaption", { id: `${id}-of` }, make("b", {}, title), " ", make("span", { className: "dim" }, description)),
      plot);
  }
  const near = new IntersectionObserver(
    (entries) => entries.forEach((entry) => {
      if (entry.isIntersecting) draw(entry.target);
    }),
    { rootMargin: "600px" },
  );
  async function furnish() {
    if (!one("#charts")) return;
    given = JSON.parse(await unpacked("charts"));
    for (const box of all("[data-charts]")) box.append(...box.dataset.charts.split(" ").map(figureOf));
    figures = all("figure.chart").filter((figure) => given.charts[figure.id]);
    for (const figure of figures) {
      figure.append(toolsOf(figure));
      near.observe(figure);
    }
  }
  const ready = furnish();
  let resizing;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(redraw, 200);
  });

  /* ---- print: charts cannot be waited for once the browser prints, so the button draws them before ---- */
  const openAll = () => all("main details").forEach((details) => (details.open = true));
  addEventListener("beforeprint", openAll);
  one("#print").addEventListener("click", async () => {
    const chosen = root.dataset.theme;
    openAll();
    root.dataset.theme = "light";
    await drawAll(false);
    print();
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    redraw();
  });

  /* Only what can be scrolled needs to be reached by the keyboard. */
  const fits = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) {
        target.tabIndex = 0;
        target.setAttribute("role", "group");
        target.setAttribute("aria-label", one("caption", target)?.textContent ?? "Table");
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
      }
    }
  });
  all(".wide").forEach((box) => fits.observe(box));
  themed();
  if (location.hash) reveal();
  /* For tests, and for whoever prints the page by a program. */
  window.llmperfPage = { drawAll, openAll };
})();
