"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const count = (number) => number.toLocaleString("en");
  const samplesOf = (number) => `${count(number)} ${number === 1 ? "sample" : "samples"}`;

  // Asking the server -----------------------------------------------------------------------------

  const status = $("#status");
  let quiet;
  const say = (text, fault = false) => {
    status.classList.toggle("fault", fault);
    status.textContent = text ? text[0].toUpperCase() + text.slice(1) : "";
    clearTimeout(quiet);
    quiet = setTimeout(() => { status.textContent = ""; }, fault ? 12000 : 6000);
  };
  async function ask(address, options) {
    let answer;
    try {
      answer = await fetch(address, options);
    } catch {
      throw new Error("kscn explore is no longer running; start it again and open its new address.");
    }
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    return told;
  }
  const saying = (work) => async (...given) => {
    try {
      return await work(...given);
    } catch (error) {
      say(error.message, true);
    }
  };

  // State -----------------------------------------------------------------------------------------

  const PAGE = { true: 60, false: 30 };
  let state = null;
  const panels = [];
  const selected = new Set();
  const cluster = (id) => state.clusters.find((one) => one.id === id);
  const called = (one) => (one.id < 0 ? "No cluster" : one.name ? `${one.name} (${one.id})` : `Cluster ${one.id}`);

  const show = (next) => {
    state = next;
    document.title = `${state.title} · kscn explore`;
    $("#title").textContent = state.title;
    const flags = state.clusters.reduce((sum, one) => sum + one.flagged, 0);
    $("#summary").textContent = `${samplesOf(state.samples)} in ${state.clusters.filter((one) => one.id >= 0).length} clusters${flags ? `, ${count(flags)} flagged` : ""}`;
    $("#confidence").textContent = state.note;
    $("#confidence").hidden = !state.note;
    $("#undo").disabled = !state.undo;
    $("#redo").disabled = !state.redo;
    showList();
    const target = $("#tray-target"), chosen = target.value;
    target.replaceChildren(...options(state.clusters.filter((one) => one.id >= 0)));
    if (chosen && cluster(Number(chosen))) target.value = chosen;
  };
  const options = (clusters) => clusters.map((one) => make("option", { value: one.id, textContent: called(one) }));

  function showList() {
    const focused = document.activeElement.closest("#list button");
    const largest = Math.max(1, ...state.clusters.map((one) => one.size));
    $("#list").replaceChildren(...state.clusters.map((one) => {
      const dot = make("i", { className: "dot" });
      dot.style.background = one.colour;
      const meter = make("span", { className: "meter" });
      meter.style.background = one.colour;
      meter.style.width = `${100 * one.size / largest}%`;
      const size = make("span", { className: "size", textContent: count(one.size) });
      if (one.flagged) size.append(make("span", { className: "flagged-count", textContent: `!${count(one.flagged)}` }));
      const button = make("button", { type: "button" }, dot, make("span", { className: "label", textContent: called(one) }), size, meter);
      button.dataset.id = one.id;
      button.setAttribute("aria-label", `${called(one)}, ${samplesOf(one.size)}${one.flagged ? `, ${one.flagged} flagged` : ""}`);
      if (panels.some((panel) => panel.id === one.id)) button.setAttribute("aria-current", "true");
      button.addEventListener("click", saying(async () => {
        await panels[0].open(one.id);
        showList();
        if (matchMedia("(max-width: 46rem)").matches) panels[0].root.scrollIntoView();
      }));
      return make("li", {}, button);
    }));
    if (focused) ($(`#list button[data-id="${focused.dataset.id}"]`) || $("#list button")).focus();
  }

  // A panel: one cluster, page by page ---------------------------------------------------------------

  class Panel {
    constructor() {
      this.root = $("#panel").content.firstElementChild.cloneNode(true);
      this.grid = $(".grid", this.root);
      this.id = null;
      this.page = 0;
      this.pages = 1;
      this.turn = 0;  // of requests: an answer that is overtaken is not shown
      this.anchor = null;
      $(".sort", this.root).append(...Object.entries(state.sorts).map(([value, textContent]) => make("option", { value, textContent })));
      $(".sort", this.root).addEventListener("change", saying(() => { this.page = 0; return this.load(); }));
      $$("[data-turn]", this.root).forEach((button) => button.addEventListener("click", saying(() => this.go(this.page + Number(button.dataset.turn)))));
      $$("[data-do]", this.root).forEach((button) => button.addEventListener("click", saying(() => actions[button.dataset.do](this))));
      this.grid.addEventListener("click", (event) => this.clicked(event));
      this.grid.addEventListener("dblclick", (event) => { const one = event.target.closest("li"); if (one) detail(Number(one.dataset.index)); });
      this.grid.addEventListener("keydown", (event) => this.pressed(event));
      $("#panels").append(this.root);
    }
    get sort() { return $(".sort", this.root).value; }
    get items() { return [...this.grid.children]; }

    async open(id, page = 0) {
      this.id = id;
      this.page = page;
      await this.load();
    }
    async go(page, focus) {
      if (page < 0 || page >= this.pages) return;
      this.page = page;
      await this.load();
      if (focus !== undefined && this.items.length) this.focus(this.items.at(focus));
    }
    async load() {
      if (!cluster(this.id)) this.id = state.clusters[0].id;
      const turn = ++this.turn;
      this.grid.setAttribute("aria-busy", "true");
      const query = new URLSearchParams({ cluster: this.id, sort: this.sort, page: this.page, size: PAGE[state.pictures] });
      try {
        const found = await ask(`api/members?${query}`);
        if (turn === this.turn) this.draw(found);
      } finally {
        if (turn === this.turn) this.grid.removeAttribute("aria-busy");
      }
    }
    draw(found) {
      const one = cluster(this.id);
      this.page = found.page;
      this.pages = found.pages;
      this.root.style.setProperty("--c", one.colour);
      $(".dot", this.root).style.background = one.colour;
      $(".title", this.root).textContent = called(one);
      $(".count", this.root).textContent = samplesOf(found.size);
      this.root.setAttribute("aria-label", called(one));
      $(".where", this.root).textContent = `page ${count(found.page + 1)} of ${count(found.pages)}`;
      $('[data-turn="-1"]', this.root).disabled = found.page === 0;
      $('[data-turn="1"]', this.root).disabled = found.page >= found.pages - 1;
      for (const name of ["name", "merge", "split"]) $(`[data-do="${name}"]`, this.root).disabled = one.id < 0;
      const focused = this.grid.contains(document.activeElement) ? document.activeElement.dataset.index : null;
      this.grid.classList.toggle("curves", !state.pictures);
      this.grid.setAttribute("aria-label", `Samples of ${called(one)}, page ${found.page + 1} of ${found.pages}`);
      this.grid.replaceChildren(...found.members.map(item));
      $(".empty", this.root).hidden = found.members.length > 0;
      this.anchor = null;
      if (this.items.length) {
        const again = this.items.find((li) => li.dataset.index === focused);
        (again || this.items[0]).tabIndex = 0;
        if (focused !== null) (again || this.items[0]).focus();
      }
    }
    focus(one) {
      this.items.forEach((li) => { li.tabIndex = -1; });
      one.tabIndex = 0;
      one.focus();
    }
    choose(one, range) {
      const from = this.items.indexOf(this.anchor), to = this.items.indexOf(one);
      const chosen = range && from >= 0 ? this.items.slice(Math.min(from, to), Math.max(from, to) + 1) : [one];
      const select = range ? true : one.getAttribute("aria-selected") !== "true";
      for (const li of chosen) {
        li.setAttribute("aria-selected", String(select));
        if (select) selected.add(Number(li.dataset.index)); else selected.delete(Number(li.dataset.index));
      }
      this.anchor = one;
      showTray();
    }
    clicked(event) {
      const one = event.target.closest("li");
      if (!one || event.detail > 1) return;
      this.focus(one);
      this.choose(one, event.shiftKey);
    }
    pressed(event) {
      const one = event.target.closest("li");
      if (!one || event.ctrlKey || event.metaKey || event.altKey) return;
      const items = this.items, at = items.indexOf(one);
      const columns = Math.max(1, items.filter((li) => li.offsetTop === items[0].offsetTop).length);
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
      const turns = { PageUp: [-1, 0], PageDown: [1, 0] }[event.key];
      if (step) {
        const next = items[at + step];
        if (next) this.focus(next);
        else if (Math.abs(step) === 1) saying(() => this.go(this.page + step, step > 0 ? 0 : -1))();
      } else if (turns) {
        saying(() => this.go(this.page + turns[0], turns[1]))();
      } else if (event.key === "Home") this.focus(items[0]);
      else if (event.key === "End") this.focus(items.at(-1));
      else if (event.key === " ") this.choose(one, event.shiftKey);
      else if (event.key === "Enter") detail(Number(one.dataset.index));
      else if (event.key === "f" || event.key === "F") {
        if (!selected.size) this.choose(one, false);
        flag(true);
      } else return;
      event.preventDefault();
    }
    close() {
      this.root.remove();
      panels.splice(panels.indexOf(this), 1);
    }
  }

  const share = (value) => (value === undefined ? "" : value < 0.1 ? `${Number((100 * value).toPrecision(2))}%` : `${Math.round(100 * value)}%`);
  const title = (one) => one.file || `Sample ${one.index}`;
  const told = (one) => {
    const facts = [title(one)];
    if (one.outside !== undefined) facts.push(`${share(one.outside)} outside its subspace`);
    if (one.next !== undefined) facts.push(`next is cluster ${one.next}`);
    if (one.cluster !== one.original) facts.push(one.original < 0 ? "was in no cluster" : `was in cluster ${one.original}`);
    if (one.moved) facts.push("moved by hand");
    if (one.flagged) facts.push("flagged as wrong");
    return facts;
  };
  function item(one) {
    const li = make("li", { tabIndex: -1, title: told(one).join(", ") });
    li.dataset.index = one.index;
    li.setAttribute("role", "option");
    li.setAttribute("aria-selected", String(selected.has(one.index)));
    li.setAttribute("aria-label", told(one).join(", "));
    li.append(one.picture ? make("img", { src: one.picture, alt: "", draggable: false }) : curve(one.curve));
    const caption = make("small", { textContent: one.file ? one.file.split("/").at(-1) : one.index });
    if (one.next !== undefined) caption.append(make("span", { textContent: ` → ${one.next}` }));
    li.append(caption);
    if (one.flagged) li.append(make("span", { className: "mark", textContent: "!" }));
    if (one.moved) li.append(make("span", { className: "mark moved", textContent: "↷" }));
    return li;
  }
  function curve(values) {
    const NS = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(NS, "svg"), line = document.createElementNS(NS, "polyline");
    svg.setAttribute("viewBox", "0 0 100 30");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const last = Math.max(1, values.length - 1);
    line.setAttribute("points", values.map((value, i) => `${(100 * i / last).toFixed(2)},${(28.5 - 27 * value).toFixed(2)}`).join(" "));
    line.setAttribute("class", "curve");
    svg.append(line);
    return svg;
  }

  // Edits -------------------------------------------------------------------------------------------

  async function edit(entry) {
    const done = await ask("api/edits", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(entry) });
    show(done.state);
    await Promise.all(panels.map((panel) => panel.load()));
    showList();
    say(`${done.said}.`);
  }
  const dialog = $("#ask");
  $("#ask-cancel").addEventListener("click", () => dialog.close(""));
  function question({ title, text, what, go, field }) {
    $("#ask-title").textContent = title;
    $("#ask-text").textContent = text;
    $("#ask-what").textContent = what;
    $("#ask-go").textContent = go;
    $("#ask-field").replaceChildren(field);
    dialog.returnValue = "";
    dialog.showModal();
    field.focus();
    if (field.select) field.select();
    return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "go" ? field.value : null), { once: true }));
  }
  const actions = {
    async name(panel) {
      const one = cluster(panel.id);
      const field = make("input", { type: "text", value: one.name, maxLength: 100, autocomplete: "off" });
      const name = await question({ title: `Rename ${called(one)}`, text: "An empty name takes the name away.", what: "Name", go: "Rename", field });
      if (name !== null) await edit({ edit: "name", cluster: panel.id, name });
    },
    async merge(panel) {
      const one = cluster(panel.id), others = state.clusters.filter((other) => other.id >= 0 && other.id !== panel.id);
      if (!others.length) return say("There is no other cluster to merge with.", true);
      const field = make("select", {}, ...options(others));
      if (panels.length > 1) {
        const beside = panels.find((other) => other !== panel).id;
        if (others.some((other) => other.id === beside)) field.value = beside;
      }
      const into = await question({ title: `Merge ${called(one)} into another cluster`, text: `All ${samplesOf(one.size)} go there, and ${called(one)} is gone.`, what: "Into", go: "Merge", field });
      if (into === null) return;
      const gone = panel.id;
      panel.id = Number(into);
      try {
        await edit({ edit: "merge", clusters: [gone], into: Number(into) });
      } catch (error) {
        panel.id = gone;
        throw error;
      }
    },
    async split(panel) {
      const one = cluster(panel.id);
      const field = make("input", { type: "number", min: 2, max: 20, step: 1, value: 2, required: true });
      const parts = await question({ title: `Split ${called(one)}`, text: "By k-subspaces on its members; the largest part keeps its number and name.", what: "Parts", go: "Split", field });
      if (parts === null) return;
      say(`Splitting ${called(one)}…`);
      await edit({ edit: "split", cluster: panel.id, parts: Number(parts) });
      const fresh = state.clusters.filter((other) => other.id >= 0).at(-1);
      await beside(fresh.id);
    },
    async compare(panel) {
      const others = state.clusters.filter((other) => other.id !== panel.id);
      if (!others.length) return say("There is no other cluster to compare with.", true);
      const field = make("select", {}, ...options(others));
      const id = await question({ title: `Compare ${called(cluster(panel.id))}`, text: "The other cluster is shown beside this one.", what: "With", go: "Compare", field });
      if (id !== null) await beside(Number(id));
    },
    close(panel) {
      panel.close();
      arrange();
      $("[data-do=compare]", panels[0].root).focus();
    },
  };
  async function beside(id) {
    if (panels.length < 2) panels.push(new Panel());
    await panels[1].open(id);
    arrange();
  }
  const arrange = () => {
    $("#panels").classList.toggle("two", panels.length > 1);
    panels.forEach((panel, i) => { $("[data-do=close]", panel.root).hidden = i === 0; $("[data-do=compare]", panel.root).hidden = i > 0; });
    showList();
  };

  // Selected samples ----------------------------------------------------------------------------------

  const tray = $("#tray");
  const showTray = () => {
    tray.hidden = selected.size === 0;
    $("#tray-count").textContent = `${samplesOf(selected.size)} selected`;
    $("#tray-detail").hidden = selected.size !== 1;
  };
  const clear = () => {
    selected.clear();
    $$('.grid li[aria-selected="true"]').forEach((li) => li.setAttribute("aria-selected", "false"));
    showTray();
  };
  const change = saying(async (entry) => {
    await edit({ ...entry, samples: [...selected] });
    clear();
  });
  const flag = (flagged) => change({ edit: "flag", flagged });
  $("#tray-move").addEventListener("click", () => change({ edit: "move", cluster: Number($("#tray-target").value) }));
  $("#tray-flag").addEventListener("click", () => flag(true));
  $("#tray-unflag").addEventListener("click", () => flag(false));
  $("#tray-clear").addEventListener("click", clear);
  $("#tray-detail").addEventListener("click", () => detail([...selected][0]));

  const detail = saying(async (index) => {
    const one = await ask(`api/samples/${index}`);
    $("#detail-title").textContent = `${title(one)}, ${called(cluster(one.cluster))}`;
    const facts = make("p", { className: "note", textContent: told(one).slice(1).join(", ") });
    const parts = one.picture ? [make("img", { src: one.picture, alt: title(one) })] : [curve(one.curve), features(one)];
    $("#detail-body").replaceChildren(...parts, facts);
    $("#detail").showModal();
  });
  function features(one) {
    const rows = one.features.map(([name, value]) => {
      const head = make("th", { scope: "row", textContent: name });
      return make("tr", {}, head, make("td", { textContent: value }));
    });
    const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("tbody", {}, ...rows)));
    if (one.width > rows.length) scroll.append(make("p", { className: "note", textContent: `The first ${count(rows.length)} of ${count(one.width)} features.` }));
    return scroll;
  }
  $("#detail-close").addEventListener("click", () => $("#detail").close());

  // The bar and keys --------------------------------------------------------------------------------

  const find = saying(async (index) => {
    const panel = panels[0];
    const query = new URLSearchParams({ sort: panel.sort, size: PAGE[state.pictures] });
    const one = await ask(`api/samples/${index}?${query}`);
    await panel.open(one.cluster, one.page);
    showList();
    const here = panel.items.find((li) => Number(li.dataset.index) === one.index);
    if (here) panel.focus(here);
    say(`Sample ${one.index} is in ${called(cluster(one.cluster))}.`);
  });
  $("#find").addEventListener("submit", (event) => { event.preventDefault(); find($("#find-index").value); });
  $("#undo").addEventListener("click", saying(() => edit({ edit: "undo" })));
  $("#redo").addEventListener("click", saying(() => edit({ edit: "redo" })));
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || $("dialog[open]");
    if (typing) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
      $(event.shiftKey ? "#redo" : "#undo").click();
    } else if (event.key === "/") $("#find-index").focus();
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });

  const media = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (media.matches ? "dark" : "light")) === "dark";
  const showTheme = () => $("#theme").setAttribute("aria-pressed", String(isDark()));
  $("#theme").addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; showTheme(); });
  media.addEventListener("change", showTheme);
  showTheme();

  saying(async () => {
    show(await ask("api/state"));
    panels.push(new Panel());
    arrange();
    await panels[0].open(state.clusters[0].id);
    showList();
    document.documentElement.dataset.ready = "true";
  })();
})();
