"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Light and dark ------------------------------------------------------------------------------

  const media = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = $("#theme");
  const isDark = () => (document.documentElement.dataset.theme || (media.matches ? "dark" : "light")) === "dark";
  const themed = [];  // what has to be drawn again when colours change
  const showTheme = () => {
    themeButton.setAttribute("aria-pressed", String(isDark()));
    themed.forEach((draw) => draw());
  };
  themeButton.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  media.addEventListener("change", showTheme);

  // Which section is being read -------------------------------------------------------------------

  const links = new Map($$(".bar nav a").map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      links.forEach((link, id) => {
        if (id === target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      });
    }
  }, { rootMargin: "-30% 0px -60% 0px" });
  links.forEach((_, id) => seen.observe(document.getElementById(id)));

  // Matrices: the full text of a cell under the pointer or the focus ---------------------------------

  for (const table of $$(".matrix")) {
    const readout = document.getElementById(table.dataset.readout);
    const rows = $$("tbody tr", table).map((row) => $$("td", row));
    const say = (cell) => { if (cell && cell.dataset.note) readout.textContent = cell.dataset.note; };
    rows.flat().forEach((cell) => { cell.tabIndex = -1; });
    rows[0][0].tabIndex = 0;
    table.addEventListener("pointerover", (event) => say(event.target.closest("td")));
    table.addEventListener("focusin", (event) => say(event.target.closest("td")));
    table.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td");
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!cell || !step) return;
      const r = rows.findIndex((row) => row.includes(cell));
      const next = (rows[r + step[0]] || [])[rows[r].indexOf(cell) + step[1]];
      event.preventDefault();
      if (!next) return;
      cell.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  // The map ---------------------------------------------------------------------------------------

  const data = JSON.parse($("#map-data").textContent);
  let plot = $("#plot");
  const frame = plot.parentElement, tip = $("#tip"), readout = $("#map-readout");
  const count = data.places.length;
  const xs = Float32Array.from(data.places, (place) => place[0]);
  const ys = Float32Array.from(data.places, (place) => place[1]);
  const pictured = data.sheet ? data.sheet.points : Array.from({ length: count }, (_, i) => i);
  const tile = new Map(pictured.map((point, place) => [point, place]));
  const shown = new Set(data.colours.map((_, i) => i));
  let colourBy = "cluster";
  let view = { x: 0, y: 0, scale: 0.94 };
  let selected = -1;

  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const palettes = { cluster: data.colours.map(rgb), class: (data.classColours || []).map(rgb) };
  const colourOf = (i) => palettes[colourBy][data[colourBy][i]] || [128, 128, 128];
  const isShown = (i) => shown.has(data.cluster[i]) || (data.cluster[i] < 0 && shown.size > 0);

  // From places to pixels of the page; the shorter side of the frame spans -1 to 1.
  const extent = () => Math.min(frame.clientWidth, frame.clientHeight) / 2 * view.scale;
  const toPage = (i) => [
    frame.clientWidth / 2 + (xs[i] - view.x) * extent(),
    frame.clientHeight / 2 - (ys[i] - view.y) * extent(),
  ];
  const radius = () => Math.max(2, Math.min(7, 140 / Math.sqrt(count) * Math.sqrt(view.scale) * Math.min(1, frame.clientWidth / 800)));

  function webglPoints(gl) {
    const shader = (kind, text) => {
      const made = gl.createShader(kind);
      gl.shaderSource(made, text);
      gl.compileShader(made);
      return made;
    };
    const program = gl.createProgram();
    gl.attachShader(program, shader(gl.VERTEX_SHADER, `
      attribute vec2 place; attribute vec4 colour;
      uniform vec2 middle, scale; uniform mediump float size; varying vec4 tint;
      void main() {
        gl_Position = vec4((place - middle) * scale, 0.0, 1.0);
        gl_PointSize = size; tint = colour;
      }`));
    gl.attachShader(program, shader(gl.FRAGMENT_SHADER, `
      precision mediump float; varying vec4 tint; uniform float size;
      void main() {
        float edge = (0.5 - distance(gl_PointCoord, vec2(0.5))) * size;
        float alpha = tint.a * clamp(edge, 0.0, 1.0);
        gl_FragColor = vec4(tint.rgb * alpha, alpha);
      }`));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    const attribute = (name, width, kind, normalised) => {
      const buffer = gl.createBuffer(), where = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(where);
      gl.vertexAttribPointer(where, width, kind, normalised, 0, 0);
      return buffer;
    };
    attribute("place", 2, gl.FLOAT, false);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(data.places.flat()), gl.STATIC_DRAW);
    const colours = attribute("colour", 4, gl.UNSIGNED_BYTE, true);
    const uniform = (name) => gl.getUniformLocation(program, name);
    const [middle, scale, size] = ["middle", "scale", "size"].map(uniform);
    return {
      colour() {
        const rgba = new Uint8Array(4 * count);
        for (let i = 0; i < count; i++) rgba.set([...colourOf(i), isShown(i) ? 217 : 0], 4 * i);
        gl.bindBuffer(gl.ARRAY_BUFFER, colours);
        gl.bufferData(gl.ARRAY_BUFFER, rgba, gl.DYNAMIC_DRAW);
      },
      draw(ratio) {
        gl.viewport(0, 0, plot.width, plot.height);
        gl.clearColor(0, 0, 0, 0);
        gl.clear(gl.COLOR_BUFFER_BIT);
        gl.uniform2f(middle, view.x, view.y);
        gl.uniform2f(scale, 2 * extent() / frame.clientWidth, 2 * extent() / frame.clientHeight);
        gl.uniform1f(size, 2 * radius() * ratio);
        gl.drawArrays(gl.POINTS, 0, count);
      },
    };
  }

  function canvasPoints(context) {
    return {
      colour() {},
      draw(ratio) {
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.clearRect(0, 0, frame.clientWidth, frame.clientHeight);
        context.globalAlpha = 0.85;
        const side = 2 * radius() * 0.85;
        for (let i = 0; i < count; i++) {
          if (!isShown(i)) continue;
          const [x, y] = toPage(i);
          context.fillStyle = `rgb(${colourOf(i)})`;
          context.fillRect(x - side / 2, y - side / 2, side, side);
        }
      },
    };
  }

  const gl = plot.getContext("webgl", { antialias: false, premultipliedAlpha: true });
  let points = gl && webglPoints(gl);
  const renderer = points ? "webgl" : "canvas";
  if (!points) {
    if (gl) {  // a canvas that once was WebGL stays so
      const fresh = plot.cloneNode();
      plot.replaceWith(fresh);
      plot = fresh;
    }
    points = canvasPoints(plot.getContext("2d"));
  }
  plot.dataset.renderer = renderer;
  plot.addEventListener("webglcontextlost", (event) => event.preventDefault());
  plot.addEventListener("webglcontextrestored", () => { points = webglPoints(gl) || points; recolour(); });

  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const ratio = Math.min(2, devicePixelRatio || 1);
      plot.width = Math.round(frame.clientWidth * ratio);
      plot.height = Math.round(frame.clientHeight * ratio);
      points.draw(ratio);
      placeTip();
    });
  };
  const recolour = () => { points.colour(); redraw(); };

  const sheet = new Image();
  if (data.sheet) sheet.src = data.sheet.uri;
  const picture = $("#tip-picture"), text = $("#tip-text");
  picture.hidden = !data.sheet;

  function select(i) {
    if (i === selected) return;
    selected = i;
    tip.hidden = i < 0;
    if (i < 0) return redraw();
    const lines = [data.cluster[i] < 0 ? "no cluster" : `cluster ${data.cluster[i]}`];
    if (data.class) lines.push(`class ${data.classes[data.class[i]]}`);
    lines.push(data.names ? data.names[i] : `sample ${data.index[i]}`);
    text.textContent = lines.join("\n");
    readout.textContent = lines.join(", ");
    if (data.sheet) {
      const { columns, width, height } = data.sheet, place = tile.get(i);
      picture.width = width;
      picture.height = height;
      picture.getContext("2d").drawImage(
        sheet, (place % columns) * width, Math.floor(place / columns) * height, width, height,
        0, 0, width, height);
    }
    placeTip();
  }

  function placeTip() {
    if (selected < 0) return;
    const [x, y] = toPage(selected);
    const left = x + tip.offsetWidth + 16 > frame.clientWidth ? x - tip.offsetWidth - 12 : x + 12;
    const top = y + tip.offsetHeight + 16 > frame.clientHeight ? y - tip.offsetHeight - 12 : y + 12;
    tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
    tip.style.borderColor = `rgb(${colourOf(selected)})`;
  }

  function nearest(x, y, reach, allowed = () => true) {
    let best = -1, least = reach * reach;
    for (const i of pictured) {
      if (!isShown(i)) continue;
      const [px, py] = toPage(i), far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least && allowed(px - x, py - y)) { least = far; best = i; }
    }
    return best;
  }

  function zoom(factor, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
    if (!factor) view = { x: 0, y: 0, scale: 0.94 };
    else {
      const before = extent(), dx = x - frame.clientWidth / 2, dy = frame.clientHeight / 2 - y;
      view.scale = Math.min(60, Math.max(0.5, view.scale * factor));
      view.x += dx / before - dx / extent();
      view.y += dy / before - dy / extent();
    }
    redraw();
  }

  let held = null;
  plot.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, y: event.clientY };
    if (event.pointerType === "mouse") plot.setPointerCapture(event.pointerId);
  });
  const release = () => { held = null; };
  plot.addEventListener("pointerup", release);
  plot.addEventListener("pointercancel", release);
  plot.addEventListener("pointermove", (event) => {
    if (held && event.pointerType === "mouse") {
      view.x -= (event.clientX - held.x) / extent();
      view.y += (event.clientY - held.y) / extent();
      held = { x: event.clientX, y: event.clientY };
      redraw();
      return;
    }
    select(nearest(event.offsetX, event.offsetY, 40));
  });
  plot.addEventListener("click", (event) => select(nearest(event.offsetX, event.offsetY, 60)));
  plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) select(-1); });
  plot.addEventListener("blur", () => select(-1));
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
  }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (way) {
      const [x, y] = selected < 0 ? [frame.clientWidth / 2, frame.clientHeight / 2] : toPage(selected);
      // Only what lies within 45 degrees of the arrow, and not the point itself.
      const ahead = (dx, dy) => {
        const along = dx * way[0] + dy * way[1];
        return along > 1 && along >= Math.abs(dx * way[1] - dy * way[0]);
      };
      const next = nearest(x, y, Infinity, selected < 0 ? undefined : ahead);
      if (next >= 0) select(next);
    } else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") zoom(0);
    else if (event.key === "Escape") select(-1);
    else return;
    event.preventDefault();
  });
  $$("[data-zoom]").forEach((button) => button.addEventListener("click", () => zoom(Number(button.dataset.zoom))));

  const boxes = $$("input[name=shown]");
  const filter = () => {
    shown.clear();
    boxes.forEach((box) => { if (box.checked) shown.add(Number(box.value)); });
    if (selected >= 0 && !isShown(selected)) select(-1);
    recolour();
  };
  boxes.forEach((box) => box.addEventListener("change", filter));
  $$("[data-all]").forEach((button) => button.addEventListener("click", () => {
    boxes.forEach((box) => { box.checked = Boolean(button.dataset.all); });
    filter();
  }));
  $$("input[name=colour]").forEach((radio) => radio.addEventListener("change", () => {
    colourBy = radio.value;
    recolour();
  }));

  themed.push(redraw);
  new ResizeObserver(redraw).observe(frame);
  recolour();
  showTheme();
})();
