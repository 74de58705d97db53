"use strict";
// Draws diagrams as SVG from plain data, for every page. The data has the fields of Diagram in
// controlplane/plots/drawing.py: axes x and y, and series of the forms steps, area, frontier, dots
// and curve. A diagram fills the width of its box and is drawn again when that changes.
//
// A pointer reads the nearest dot, or the interval of time below it; the arrow keys do the same in
// a diagram that has the focus. valuesTable shows the same values as a table.

// -- numbers ------------------------------------------------------------------------------------

const number = (value, options) => value.toLocaleString("en-GB", options);

// A value for reading: as many decimals as its axis asks for, else about three digits.
function readable(value, axis = {}) {
  if (value == null) return "–";
  if (axis.decimals != null)
    return number(value, {
      minimumFractionDigits: axis.decimals,
      maximumFractionDigits: axis.decimals,
    });
  return number(
    value,
    Math.abs(value) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 },
  );
}
const withUnit = (value, axis) =>
  readable(value, axis) + (value == null || !axis.unit ? "" : " " + axis.unit);
const axisLabel = axis => axis.label + (axis.unit ? ", " + axis.unit : "");

function clockTime(s) {
  const whole = Math.round(s),
    two = n => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

// Times of an axis are of a simulation, which begins at 0, or with `wall` since 1970, in UTC.
const timeText = (s, axis) =>
  axis.wall ? new Date(1000 * s).toISOString().slice(11, 19) + " UTC" : clockTime(s);

// What is read of a series: where areas are stacked, `read` has the values by themselves.
const valueAt = (one, i) => (one.read || one.y)[i];

// -- axes ---------------------------------------------------------------------------------------

// [value, text] of the marks of an axis: those that it brings, else round values.
function axisTicks(axis, wanted = 4) {
  if (axis.ticks && axis.ticks.length) return axis.ticks;
  const { least, most } = axis,
    ticks = [];
  if (axis.scale === "log") {
    const steps = Math.log10(most / least) > 2.5 ? [1] : [1, 2, 5];
    for (let e = Math.floor(Math.log10(least)); e <= Math.ceil(Math.log10(most)); e++)
      for (const step of steps) {
        const value = step * 10 ** e;
        if (value >= least && value <= most)
          ticks.push([value, number(value, { maximumSignificantDigits: 1 })]);
      }
    if (ticks.length > 1) return ticks;
    ticks.length = 0; // a narrow range: the marks of an even axis lie well enough
  }
  const raw = (most - least) / wanted;
  if (!(raw > 0)) return [[least, readable(least)]];
  const power = 10 ** Math.floor(Math.log10(raw)),
    nice = [1, 2, 2.5, 5, 10].find(m => m * power >= raw * 0.99),
    step = nice * power;
  const decimals = Math.max(0, (nice === 2.5 ? 1 : 0) - Math.floor(Math.log10(step) + 1e-9));
  for (let i = Math.ceil(least / step - 1e-9); i * step <= most + 1e-9 * step; i++) {
    const value = i * step || 0; // no "-0"
    ticks.push([
      value,
      number(value, { minimumFractionDigits: decimals, maximumFractionDigits: decimals }),
    ]);
  }
  return ticks;
}

// From values to pixels; what lies outside of the axis runs along its edge.
function scaleOf(axis, begin, end) {
  const along = axis.scale === "log" ? Math.log10 : value => value;
  const from = along(axis.least),
    span = along(axis.most) - from || 1;
  return value => begin + (end - begin) * Math.min(Math.max((along(value) - from) / span, 0), 1);
}

const textWidth = text => 6.3 * text.length;

// -- one name in all diagrams and tables ----------------------------------------------------------

let litName = null;

// Marks everything of a name, in diagrams and in rows of tables, or nothing.
function light(name) {
  litName = name;
  for (const node of document.querySelectorAll("[data-name]"))
    node.classList.toggle("lit", node.dataset.name === name);
}
function named(node, name) {
  node.dataset.name = name;
  node.classList.toggle("lit", name === litName);
  return node;
}
// A row of a table that marks its series while the pointer is on it.
function namedRow(node, name) {
  node.onmouseenter = () => light(name);
  node.onmouseleave = () => light(null);
  return named(node, name);
}

// -- what is read beside the pointer --------------------------------------------------------------

const readout = {
  node: null,
  show(content, x, y) {
    if (!this.node)
      document.body.append((this.node = el("div", { id: "readout", "aria-hidden": "true" })));
    this.node.replaceChildren(...content);
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const beside = x + 18 + width > innerWidth ? x - 18 - width : x + 18;
    this.node.style.left = Math.max(4, beside) + "px";
    this.node.style.top = Math.max(4, Math.min(y + 12, innerHeight - height - 8)) + "px";
    this.node.style.visibility = "visible";
  },
  hide() {
    if (this.node) this.node.style.visibility = "hidden";
  },
};

const key = tone => el("i", { class: "key " + tone });
const legend = keys =>
  el("span", { class: "keys" }, ...keys.map(([name, tone]) => el("span", {}, key(tone), name)));
const pairTable = pairs =>
  el(
    "table",
    {},
    el("tbody", {}, ...pairs.map(cells => el("tr", {}, ...cells.map(cell => el("td", {}, cell))))),
  );

// -- a diagram ------------------------------------------------------------------------------------

class Chart {
  // height: pixels, or a function of the box; hidden: names of series that are not drawn;
  // group: the charts that share the axis of time, this one included.
  constructor(box, { height = 300, hidden = new Set(), group = null } = {}) {
    Object.assign(this, {
      box,
      height,
      hidden,
      group: group || [],
      diagram: null,
      at: -1,
      reading: null,
      width: 0,
    });
    this.group.push(this);
    this.observer = new ResizeObserver(() => requestAnimationFrame(() => this.fit()));
    this.observer.observe(box);
  }

  // An observer tells once more of a box that was taken out of the page.
  fit() {
    if (!this.box.isConnected) return this.observer.disconnect();
    if (this.diagram && Math.abs(this.box.clientWidth - this.width) > 1) this.draw();
  }

  show(diagram) {
    showAll([this], [diagram]);
  }

  get timed() {
    return this.diagram.x.scale === "time";
  }

  draw() {
    const { diagram, box } = this,
      { x, y } = diagram;
    this.width = box.clientWidth;
    const W = Math.max(280, this.width),
      H = typeof this.height === "function" ? this.height(box) : this.height;
    const yTicks = axisTicks(y, Math.max(4, Math.round(H / 70)));
    // As wide in all diagrams over time, so that times lie below each other.
    const left = Math.max(this.timed ? 48 : 30, ...yTicks.map(([, text]) => textWidth(text) + 12));
    const top = this.timed ? 8 : 24,
      bottom = this.timed ? 22 : 40,
      right = 12,
      ground = H - bottom;
    this.frame = { left, right: W - right, top, ground };
    this.X = scaleOf(x, left, W - right);
    this.Y = scaleOf(y, ground, top);
    const focused = this.root && document.activeElement === this.root;
    const root = (this.root = svg("svg", {
      viewBox: `0 0 ${W} ${H}`,
      width: W,
      height: H,
      tabindex: 0,
      role: "slider",
      "aria-label": diagram.title + (diagram.detail ? ", " + diagram.detail : ""),
      "aria-valuemin": 0,
      "aria-valuenow": 0,
      "aria-valuemax": Math.max(0, this.stops().length - 1),
      "aria-valuetext": "The arrow keys read the values.",
    }));
    this.drawAxes(yTicks);
    const areas = diagram.series.filter(one => one.form === "area"),
      others = diagram.series.filter(one => one.form !== "area");
    for (const one of [...areas.reverse(), ...others.reverse()])
      if (!this.hidden.has(one.name)) root.append(this.drawSeries(one));
    this.drawLabels();
    root.append((this.cursor = svg("line", { class: "cursor", y1: top, y2: ground })));
    root.onpointermove = event => this.onPointer(event);
    root.onpointerleave = root.onblur = () => this.leave();
    root.onkeydown = event => this.onKey(event);
    // What is taken out of the page has not been left by its reader.
    const before = box.firstElementChild;
    if (before) before.onblur = before.onpointerleave = null;
    box.replaceChildren(root);
    if (focused) root.focus();
  }

  drawAxes(yTicks) {
    const { x, y } = this.diagram,
      { left, right, top, ground } = this.frame,
      root = this.root;
    for (const [value, text] of yTicks)
      root.append(
        svg("line", { class: "grid", x1: left, x2: right, y1: this.Y(value), y2: this.Y(value) }),
        svg("text", { x: left - 8, y: this.Y(value) + 4, "text-anchor": "end" }, text),
      );
    let end = -Infinity; // of the text before: where there is no room, a mark has none
    for (const [value, text] of axisTicks(x)) {
      const at = this.X(value),
        half = textWidth(text) / 2;
      const middle = Math.min(Math.max(at, this.timed ? half : left), right - half + 8);
      if (!this.timed)
        root.append(svg("line", { class: "grid", x1: at, x2: at, y1: top, y2: ground }));
      if (middle - half < end + 5) continue;
      end = middle + half;
      root.append(svg("text", { x: middle, y: ground + 16, "text-anchor": "middle" }, text));
    }
    root.append(svg("line", { class: "axis", x1: left, x2: right, y1: ground, y2: ground }));
    if (this.timed) return;
    root.append(
      svg("text", { class: "title", x: 0, y: 11 }, axisLabel(y)),
      svg("text", { class: "title", x: right, y: ground + 35, "text-anchor": "end" }, axisLabel(x)),
    );
  }

  drawSeries(one) {
    const group = named(
      svg("g", {
        class: ["series", one.form, one.tone, one.faint ? "faint" : ""].join(" ").trim(),
      }),
      one.name,
    );
    const path = d => {
      if (d) group.append(svg("path", { d }));
    };
    if (one.form === "steps" || one.form === "area" || one.form === "frontier")
      path(this.steps(one));
    if (one.form === "curve")
      path(one.x.map((x, i) => (i ? "L" : "M") + this.place(x, one.y[i])).join(""));
    if (one.form === "curve" || one.form === "dots")
      one.x.forEach((x, i) =>
        group.append(
          svg("circle", {
            class: one.hollow?.[i] ? "hollow" : null,
            cx: this.X(x).toFixed(1),
            cy: this.Y(one.y[i]).toFixed(1),
            r: one.size || 3,
          }),
        ),
      );
    return group;
  }

  place(x, y) {
    return this.X(x).toFixed(1) + "," + this.Y(y).toFixed(1);
  }

  // Each value holds until the next x; where one is missing, the path is broken.
  steps(one) {
    const { ground, right } = this.frame,
      area = one.form === "area";
    let d = "",
      open = false;
    one.y.forEach((value, i) => {
      const begin = this.X(one.x[i]).toFixed(1),
        end = i + 1 < one.x.length ? this.X(one.x[i + 1]).toFixed(1) : right;
      if (value == null) {
        if (open && area) d += `V${ground}Z`;
        open = false;
        return;
      }
      const level = this.Y(value).toFixed(1);
      d += open
        ? `V${level}H${end}`
        : area
          ? `M${begin},${ground}V${level}H${end}`
          : `M${begin},${level}H${end}`;
      open = true;
    });
    return d + (open && area ? `V${ground}Z` : "");
  }

  // A label stands beside its dot where it covers no other label and no other dot, and begins at
  // none that is nearer; else nowhere.
  drawLabels() {
    const dots = this.diagram.series.filter(one => one.form === "dots"),
      taken = [];
    const { left, right } = this.frame;
    for (const one of dots)
      if (one.label && !this.hidden.has(one.name)) {
        const x = this.X(one.x[0]),
          y = this.Y(one.y[0]),
          width = textWidth(one.label) + 2,
          far = one.size + 5;
        // A frontier goes on to the right of its dots: beside them is the last place.
        const places = [
          [far, -9, "start"],
          [-far, 4, "end"],
          [-far, -9, "end"],
          [far, 17, "start"],
          [-far, 17, "end"],
          [0, -far - 4, "middle"],
          [0, far + 12, "middle"],
          [far, 4, "start"],
        ];
        for (const [dx, dy, anchor] of places) {
          const from = x + dx - { start: 0, end: width, middle: width / 2 }[anchor];
          const box = [from, y + dy - 11, from + width, y + dy + 3];
          const outside =
            box[0] < left || box[2] > right + 8 || box[1] < 12 || box[3] > this.frame.ground;
          const covers =
            taken.some(t => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1]) ||
            dots.some(
              other =>
                other !== one &&
                this.X(other.x[0]) > box[0] - 6 &&
                this.X(other.x[0]) < box[2] + 6 &&
                this.Y(other.y[0]) > box[1] - 6 &&
                this.Y(other.y[0]) < box[3] + 6,
            );
          const near = (to, ofY) => Math.hypot(x + dx - to, y + dy - 4 - ofY);
          const misleads = dots.some(
            other => other !== one && near(this.X(other.x[0]), this.Y(other.y[0])) < near(x, y),
          );
          if (outside || covers || misleads) continue;
          taken.push(box);
          this.root.append(
            named(
              svg(
                "text",
                { class: "label", x: x + dx, y: y + dy, "text-anchor": anchor },
                one.label,
              ),
              one.name,
            ),
          );
          break;
        }
      }
  }

  // -- reading ------------------------------------------------------------------------------------

  // What can be read one after the other: intervals of time, or dots from left to right.
  stops() {
    if (this.timed) return this.diagram.series[0].x.map((_, i) => i);
    const dots = this.diagram.series.filter(
      one => (one.form === "dots" || one.form === "curve") && !this.hidden.has(one.name),
    );
    return dots
      .flatMap(one => one.x.map((x, i) => ({ one, i })))
      .sort((a, b) => a.one.x[a.i] - b.one.x[b.i] || a.one.y[a.i] - b.one.y[b.i]);
  }

  onPointer(event) {
    const box = this.root.getBoundingClientRect(),
      shrunk = this.root.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * shrunk,
      y = (event.clientY - box.top) * shrunk,
      stops = this.stops();
    let at = -1;
    if (this.timed) {
      const starts = this.diagram.series[0].x;
      if (x >= this.frame.left && x <= this.frame.right)
        at = starts.findLastIndex(start => this.X(start) <= x + 0.01);
    } else {
      let nearest = 24;
      stops.forEach(({ one, i }, index) => {
        const far = Math.hypot(this.X(one.x[i]) - x, this.Y(one.y[i]) - y);
        if (far < nearest) {
          nearest = far;
          at = index;
        }
      });
    }
    if (at < 0) this.leave();
    else this.read(at, event.clientX, event.clientY);
  }

  onKey(event) {
    const last = this.stops().length - 1,
      fast = Math.max(1, Math.round(last / 10));
    const next = {
      ArrowRight: this.at + 1,
      ArrowUp: this.at + 1,
      ArrowLeft: this.at - 1,
      ArrowDown: this.at - 1,
      PageUp: this.at + fast,
      PageDown: this.at - fast,
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === "Escape") this.leave();
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this.read(Math.min(Math.max(next, 0), last));
  }

  // Shows what is at a stop, beside the pointer or, without one, beside the stop.
  read(at, clientX, clientY) {
    this.at = at;
    this.reading = { clientX, clientY };
    const stop = this.stops()[at],
      { one, i } = this.timed ? {} : stop;
    const content = this.timed ? this.readTime(at) : this.readDot(one, i);
    const box = this.root.getBoundingClientRect(),
      scale = box.width / this.root.viewBox.baseVal.width;
    const x = this.timed ? this.middle(at) : this.X(one.x[i]),
      y = this.timed ? this.frame.top : this.Y(one.y[i]);
    readout.show(content, clientX ?? box.left + x * scale, clientY ?? box.top + y * scale);
    this.root.setAttribute("aria-valuenow", at);
    this.root.setAttribute("aria-valuetext", this.spoken(stop));
    if (!this.timed) return light(one.name);
    for (const chart of this.group) {
      const middle = chart.middle(at);
      chart.cursor.setAttribute("x1", middle);
      chart.cursor.setAttribute("x2", middle);
      chart.cursor.classList.add("on");
    }
  }

  leave() {
    this.reading = null;
    readout.hide();
    if (this.timed) for (const chart of this.group) chart.cursor.classList.remove("on");
    else light(null);
  }

  // By what a stop is known again in another diagram: its time, or the name of its dot.
  called(at) {
    return this.timed ? this.diagram.series[0].x[at] : this.stops()[at].one.name;
  }
  bounds(at) {
    const { series, x } = this.diagram;
    return [series[0].x[at], series[0].x[at + 1] ?? x.most];
  }
  middle(at) {
    const [begin, end] = this.bounds(at);
    return (this.X(begin) + this.X(end)) / 2;
  }

  // One line for a screen reader.
  spoken(stop) {
    const { x, y, series } = this.diagram;
    if (!this.timed)
      return (
        `${stop.one.name}: ${withUnit(stop.one.x[stop.i], x)}, ${withUnit(stop.one.y[stop.i], y)}` +
        stop.one.details?.map(([what, value]) => `, ${what} ${value}`).join("")
      );
    return (
      `${this.bounds(stop)
        .map(s => timeText(s, x))
        .join(" to ")}: ` +
      series.map(one => `${one.name} ${readable(valueAt(one, stop), y)}`).join(", ")
    );
  }

  readDot(one, i) {
    const { x, y } = this.diagram,
      predicted = one.hollow?.[i] ? " (predicted)" : "";
    return [
      el("b", {}, key(one.tone), one.name),
      pairTable([
        [x.label, withUnit(one.x[i], x)],
        [y.label, withUnit(one.y[i], y) + predicted],
        ...(one.details || []),
      ]),
    ];
  }

  // All diagrams at one time. What has a name of its own is a line; what several diagrams show by
  // the same names is a table of names and diagrams.
  readTime(at) {
    const diagrams = this.group.map(chart => chart.diagram),
      visible = name => !this.hidden.has(name);
    const names = [
      ...new Set(diagrams.flatMap(diagram => diagram.series.map(one => one.name))),
    ].filter(visible);
    const shared = names.filter(
      name => diagrams.filter(diagram => diagram.series.some(one => one.name === name)).length > 1,
    );
    const head = el(
      "b",
      {},
      this.bounds(at)
        .map(s => timeText(s, this.diagram.x))
        .join(" to "),
    );
    const cell = (one, diagram) => (one ? readable(valueAt(one, at), diagram.y) : "");
    const several = shared.length > 1 || this.hidden.size > 0,
      lines = [];
    for (const diagram of diagrams)
      for (const one of diagram.series)
        if (visible(one.name) && !(several && shared.includes(one.name)))
          lines.push([
            el(
              "span",
              {},
              key(one.tone),
              diagram.series.length > 1 ? one.name : diagram.title.toLowerCase(),
            ),
            cell(one, diagram),
          ]);
    if (!several) return [head, pairTable(lines)];
    const rows = shared.map(name => {
      const found = diagrams.map(diagram => diagram.series.find(one => one.name === name));
      return [
        el("span", {}, key(found.find(Boolean).tone), name),
        ...found.map((one, i) => cell(one, diagrams[i])),
      ];
    });
    const table = pairTable(rows);
    table.prepend(
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th"),
          ...diagrams.map(diagram => el("th", {}, diagram.title.replace("Demand and c", "C"))),
        ),
      ),
    );
    return [
      head,
      ...lines.map(([what, value]) => el("div", { class: "line" }, what, " " + value)),
      table,
    ];
  }
}

// Gives diagrams to charts: those of a group together, or one by itself. Who reads one goes on: a
// pointer reads what is below it now, the keyboard what it has read before.
function showAll(charts, diagrams) {
  const reader = charts.find(chart => chart.reading),
    before = reader && reader.called(reader.at);
  charts.forEach((chart, i) => {
    chart.diagram = diagrams[i];
    chart.at = -1;
    chart.draw();
  });
  if (!reader) return;
  if (reader.reading.clientX != null) return reader.onPointer(reader.reading);
  const at = reader.stops().findIndex((_, i) => reader.called(i) === before);
  if (at < 0) reader.leave();
  else reader.read(at);
}

// The values of a diagram as a table, made when it is opened first.
function valuesTable(diagram) {
  const box = el("details", { class: "values" }, el("summary", {}, "Values as a table"));
  box.ontoggle = () => {
    if (!box.open || box.children.length > 1) return;
    const { x, y, series } = diagram,
      timed = x.scale === "time";
    const head = timed
      ? ["Time", ...series.map(one => one.name)]
      : ["Variant", axisLabel(x), axisLabel(y)];
    const rows = timed
      ? series[0].x.map((start, i) => [
          timeText(start, x),
          ...series.map(one => readable(valueAt(one, i), y)),
        ])
      : series
          .filter(one => one.form !== "frontier")
          .flatMap(one =>
            one.x.map((at, i) => [
              one.name,
              readable(at, x),
              readable(one.y[i], y) + (one.hollow?.[i] ? " (predicted)" : ""),
            ]),
          );
    const table = pairTable(rows);
    table.prepend(el("thead", {}, el("tr", {}, ...head.map(text => el("th", {}, text)))));
    box.append(el("div", { class: "scroll", tabindex: 0 }, table));
  };
  return box;
}
