"use strict";

// smoothed returns the moving average of y, as Smooth of package curves: null stays null.
function smoothed(y, w) {
  let sum = 0, weight = 0;
  return y.map((v) => {
    if (v === null) return null;
    sum = v + w * sum;
    weight = 1 + w * weight;
    return sum / weight;
  });
}

// ticks returns about n round numbers from low to high.
function ticks(low, high, n) {
  const rough = (high - low) / n;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough * 0.999) * power;
  const all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    all.push(Number((i * step).toPrecision(12)));
  }
  return all;
}

// decades returns powers of ten from low to high, or round numbers if they are fewer than two.
function decades(low, high) {
  const all = [];
  for (let e = Math.ceil(Math.log10(low) - 1e-9); Math.pow(10, e) <= high * (1 + 1e-9); e++) {
    all.push(Number(Math.pow(10, e).toPrecision(12)));
  }
  return all.length > 1 ? all : ticks(low, high, 4).filter((v) => v > 0);
}

// text returns a number in few characters.
function text(v) {
  if (v === null || v === undefined) return "not finite";
  const size = Math.abs(v);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return v.toExponential(3).replace(/\.?0+e/, "e");
  return String(Number(v.toPrecision(5)));
}

// nearest returns the index of the number in the ascending list x that is nearest to v.
function nearest(x, v) {
  let low = 0, high = x.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < v) low = middle + 1; else high = middle;
  }
  return low > 0 && v - x[low - 1] <= x[low] - v ? low - 1 : low;
}

// range returns the extent of the curves in a panel, with room above and below. It is logarithmic
// if that is wanted and all values are above 0.
function range(curves, wantsLog) {
  let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
  for (const c of curves) {
    for (let i = 0; i < c.x.length; i++) {
      x0 = Math.min(x0, c.x[i]);
      x1 = Math.max(x1, c.x[i]);
      if (c.y[i] !== null) {
        y0 = Math.min(y0, c.y[i]);
        y1 = Math.max(y1, c.y[i]);
      }
    }
  }
  if (x0 > x1) [x0, x1] = [0, 1];
  if (y0 > y1) [y0, y1] = [0, 1];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const log = wantsLog && y0 > 0 && y1 > 3 * y0; // on a shorter axis a line looks the same
  if (log) {
    const air = Math.pow(y1 / y0, 0.04);
    return { x0, x1, y0: y0 / air, y1: y1 * air, log };
  }
  const air = y1 - y0 <= 1e-9 * Math.abs(y1) ? Math.max(Math.abs(y0) / 10, 1e-9) : (y1 - y0) * 0.04;
  return { x0, x1, y0: y0 - air, y1: y1 + air, log };
}

// path returns the curve as the attribute d of a path. A null interrupts it; a point alone is a dot.
function path(x, y, px, py) {
  let d = "", pen = false;
  for (let i = 0; i < x.length; i++) {
    if (y[i] === null) { pen = false; continue; }
    const at = px(x[i]).toFixed(1) + " " + py(y[i]).toFixed(1);
    const alone = !pen && (i + 1 === x.length || y[i + 1] === null);
    d += (pen ? "L" : "M") + at + (alone ? "h.01" : "");
    pen = true;
  }
  return d;
}

if (typeof document !== "undefined") start(JSON.parse(document.getElementById("data").textContent));

// start shows the data: {axes, over, smooth, log, metrics, runs: [{name, color, dash, curves}]}. A
// curve has y and a list for each axis.
function start(data) {
  const $ = (id) => document.getElementById(id);
  const shown = data.runs.map(() => true);
  const make = (name, attributes, parent) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    parent.appendChild(e);
    return e;
  };
  for (const axis of data.axes) $("axis").add(new Option(axis, axis, axis === data.over, axis === data.over));
  $("smooth").value = data.smooth;
  $("log").checked = data.log;
  data.runs.forEach((run, r) => {
    const b = document.createElement("button");
    const mark = document.createElement("i");
    mark.style.background = run.color;
    b.append(mark, run.name);
    b.setAttribute("aria-pressed", "true");
    b.onclick = () => {
      shown[r] = !shown[r];
      b.setAttribute("aria-pressed", String(shown[r]));
      drawAll();
    };
    $("runs").append(b);
  });
  const panels = data.metrics.map((metric) => {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = metric;
    figure.append(caption);
    const svg = make("svg", { role: "img", "aria-label": metric }, figure);
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    figure.append(tip);
    $("panels").append(figure);
    return { metric, svg, tip };
  });

  // curvesOf returns the curves of a panel on the chosen axis.
  function curvesOf(metric) {
    const axis = $("axis").value, w = Number($("smooth").value);
    return data.runs.flatMap((run, r) => {
      const c = run.curves[metric];
      if (!shown[r] || !c || !c[axis]) return [];
      return [{ run, x: c[axis], y: c.y, smooth: w > 0 ? smoothed(c.y, w) : null }];
    });
  }

  function drawPanel(p) {
    p.svg.replaceChildren();
    const width = p.svg.clientWidth || 420, height = 260;
    const left = 58, right = 10, top = 8, bottom = 34;
    p.svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    const curves = curvesOf(p.metric), r = range(curves, $("log").checked);
    const up = r.log ? Math.log10 : (v) => v;
    const px = (v) => left + ((v - r.x0) / (r.x1 - r.x0)) * (width - left - right);
    const py = (v) => height - bottom - ((up(v) - up(r.y0)) / (up(r.y1) - up(r.y0))) * (height - top - bottom);
    for (const v of ticks(r.x0, r.x1, 6)) {
      make("line", { class: "grid", x1: px(v), x2: px(v), y1: top, y2: height - bottom }, p.svg);
      make("text", { x: px(v), y: height - bottom + 14, "text-anchor": "middle" }, p.svg).textContent = text(v);
    }
    for (const v of r.log ? decades(r.y0, r.y1) : ticks(r.y0, r.y1, 5)) {
      make("line", { class: "grid", x1: left, x2: width - right, y1: py(v), y2: py(v) }, p.svg);
      make("text", { x: left - 6, y: py(v) + 4, "text-anchor": "end" }, p.svg).textContent = text(v);
    }
    make("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, p.svg).textContent = $("axis").value;
    for (const c of curves) {
      const line = { stroke: c.run.color, "stroke-dasharray": c.run.dash, "stroke-linecap": "round" };
      make("path", { ...line, class: c.smooth ? "curve raw" : "curve", d: path(c.x, c.y, px, py) }, p.svg);
      if (c.smooth) make("path", { ...line, class: "curve", d: path(c.x, c.smooth, px, py) }, p.svg);
    }
    const cursor = make("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" }, p.svg);
    p.svg.onpointermove = (e) => hover(e.clientX - p.svg.getBoundingClientRect().left);
    p.svg.onpointerleave = () => { p.tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };

    // hover shows the values of all curves at the recorded place that is nearest to the pointer.
    function hover(at) {
      const v = r.x0 + ((at - left) / (width - left - right)) * (r.x1 - r.x0);
      const found = curves.filter((c) => c.x.length > 0).map((c) => ({ c, i: nearest(c.x, v) }));
      if (found.length === 0) return;
      const best = found.reduce((a, b) => (Math.abs(b.c.x[b.i] - v) < Math.abs(a.c.x[a.i] - v) ? b : a));
      const x = best.c.x[best.i];
      cursor.setAttribute("x1", px(x));
      cursor.setAttribute("x2", px(x));
      cursor.setAttribute("visibility", "visible");
      const table = document.createElement("table");
      const row = (...cells) => {
        const tr = table.insertRow();
        for (const cell of cells) tr.insertCell().append(cell);
        return tr;
      };
      row($("axis").value, text(x));
      for (const c of curves) {
        if (c.x.length === 0) continue;
        const i = nearest(c.x, x);
        const y = text(c.y[i]) + (c.smooth ? " (" + text(c.smooth[i]) + ")" : "");
        row(c.run.name, c.x[i] === x ? y : y + " at " + text(c.x[i])).cells[0].style.color = c.run.color;
      }
      p.tip.replaceChildren(table);
      p.tip.hidden = false;
      const room = p.svg.clientWidth - p.tip.offsetWidth;
      p.tip.style.left = Math.max(0, Math.min(room, px(x) + (px(x) > width / 2 ? -p.tip.offsetWidth - 12 : 12))) + "px";
      p.tip.style.top = "2rem";
    }
  }

  function drawAll() {
    $("amount").textContent = Number($("smooth").value).toFixed(2);
    panels.forEach(drawPanel);
  }
  for (const id of ["axis", "smooth", "log"]) $(id).oninput = drawAll;
  window.addEventListener("resize", drawAll);
  drawAll();
}
