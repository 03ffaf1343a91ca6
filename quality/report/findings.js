"use strict";
// Opens the packed findings, filters them by words, check, label and split, and shows a page of rows at a time.
// The state is in the address: #filter=coat&check=veracity.label_errors&page=2 is a link to that view.
(async function () {
  const packed = document.getElementById("finding-data");
  const form = document.getElementById("finding-filter");
  if (!packed || !form || typeof DecompressionStream === "undefined") return; // the first page stays as it is
  const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  packed.textContent = "";

  const PAGE = 100;
  const body = document.querySelector("#finding-rows tbody");
  const said = document.getElementById("filtered");
  const back = document.getElementById("page-back");
  const next = document.getElementById("page-next");
  const boxes = { filter: "filter", check: "by-check", label: "by-label", split: "by-split" };
  const box = (name) => document.getElementById(boxes[name]);
  const rows = []; // [check, key, note] numbers
  data.checks.forEach(([, , , keys, notes], c) => keys.forEach((k, i) => rows.push([c, k, notes[i]])));
  const texts = data.keys.map((key, k) =>
    [key, data.labels[data.label[k]], data.splits[data.split[k]], data.paths[k]].join(" ").toLowerCase());
  const names = data.checks.map(([v, check]) => (v + " " + check + " " + check.replaceAll("_", " ")).toLowerCase());
  const notes = data.notes.map((note) => note.toLowerCase());
  const icons = {};
  document.querySelectorAll("#verdicts .status").forEach((one) => (icons[one.classList[1]] = one));
  let found = rows, page = 0;

  function element(name, text, kind) {
    const one = document.createElement(name);
    if (text !== undefined) one.textContent = text;
    if (kind) one.className = kind;
    return one;
  }

  function draw() {
    const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
    page = Math.min(Math.max(page, 0), last);
    const part = found.slice(page * PAGE, (page + 1) * PAGE).map(([c, k, n]) => {
      const [v, check, result] = data.checks[c];
      const row = element("tr"), by = element("span", undefined, "found-by");
      by.append(icons[result] ? icons[result].cloneNode(true) : element("span", result),
                element("span", check.replaceAll("_", " ")));
      row.append(element("td"));
      row.firstChild.append(by);
      const key = element("td");
      key.append(element("code", data.keys[k]));
      row.append(key);
      for (const shown of [data.labels[data.label[k]], data.splits[data.split[k]], data.paths[k]])
        row.append(element("td", shown || "–"));
      row.append(element("td", data.notes[n]));
      return row;
    });
    body.replaceChildren(...part);
    const count = found.length.toLocaleString("en");
    const from = (page * PAGE + 1).toLocaleString("en"), to = Math.min((page + 1) * PAGE, found.length).toLocaleString("en");
    said.textContent = found.length ? from + " to " + to + " of " + count : "none of " + rows.length.toLocaleString("en");
    back.disabled = page === 0;
    next.disabled = page >= last;
  }

  function filter() {
    const words = box("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = (name) => (box(name) ? box(name).value : "");
    const check = chosen("check"), label = chosen("label"), split = chosen("split");
    found = rows.filter(([c, k, n]) =>
      (!check || data.checks[c][0] + "." + data.checks[c][1] === check) &&
      (!label || data.labels[data.label[k]] === label) &&
      (!split || data.splits[data.split[k]] === split) &&
      words.every((word) => texts[k].includes(word) || names[c].includes(word) || notes[n].includes(word)));
  }

  function remember() {
    const state = new URLSearchParams();
    for (const name of Object.keys(boxes)) if (box(name) && box(name).value) state.set(name, box(name).value);
    if (page) state.set("page", page + 1);
    const address = state.toString();
    if (address || /=/.test(location.hash)) history.replaceState(null, "", "#" + (address || "findings"));
  }

  function changed(turn) {
    page = turn === undefined ? 0 : page + turn;
    if (turn === undefined) filter();
    draw();
    remember();
  }

  function follow() { // a link to a filtered view
    if (!location.hash.includes("=")) return false;
    const state = new URLSearchParams(location.hash.slice(1));
    for (const name of Object.keys(boxes)) if (box(name)) box(name).value = state.get(name) || "";
    filter();
    page = (parseInt(state.get("page"), 10) || 1) - 1;
    draw();
    document.getElementById("findings").scrollIntoView({ behavior: "instant" });
    return true;
  }

  form.hidden = false;
  form.addEventListener("input", () => changed());
  back.addEventListener("click", () => changed(-1));
  next.addEventListener("click", () => changed(1));
  document.querySelectorAll("a[data-filter]").forEach((link) => (link.hash = link.dataset.filter));
  window.addEventListener("hashchange", follow);
  if (!follow()) { filter(); draw(); }
  document.documentElement.dataset.ready = "yes";
})();
