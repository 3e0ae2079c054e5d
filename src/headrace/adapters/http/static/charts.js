// What was seen of rounds since the page was opened: the server keeps no history of them.

const KEPT = 600;
const COLOURS = ["#3b7dd8", "#3a9e5b", "#d08a1d", "#9561c9", "#c94f4f", "#5b8f99"];

function styled() {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--soft").trim(), line: style.getPropertyValue("--line").trim() };
}

class Chart {
  constructor(element, names, { second = null } = {}) {
    Object.assign(this, { element, names, second, data: [[], ...names.map(() => [])] });
    const size = () => ({ width: Math.max(240, element.clientWidth), height: 210 });
    const { ink, line } = styled();
    const axis = (extra) => ({ stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, ...extra });
    this.plot = new window.uPlot(
      {
        ...size(),
        scales: { y: { range: (plot, low, high) => [0, Math.max(1, high * 1.1 || 1)] }, z: { range: (plot, low, high) => [0, Math.max(1, high * 1.1 || 1)] } },
        series: [{}, ...names.map((label, at) => ({ label, stroke: COLOURS[at % COLOURS.length], width: 2, scale: label === second ? "z" : "y" }))],
        axes: [axis({}), axis({ size: 60 }), ...(second ? [axis({ scale: "z", side: 1, size: 60, grid: { show: false } })] : [])],
      },
      this.data,
      element,
    );
    this.resized = new ResizeObserver(() => this.plot.setSize(size()));
    this.resized.observe(element);
  }

  end() {
    this.resized.disconnect();
    this.plot.destroy();
  }

  add(at, values) {
    this.data[0].push(at);
    values.forEach((value, number) => this.data[number + 1].push(value ?? null));
    for (const column of this.data) if (column.length > KEPT) column.shift();
  }

  draw() {
    this.plot.setData(this.data);
  }
}

export class Charts {
  constructor(phases, rates, select) {
    Object.assign(this, { phases, rates, select, seen: new Map() });
    select.addEventListener("change", () => this.show());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
  }

  add(subs, streams, atS) {
    for (const [name, sub] of Object.entries(subs)) {
      if (!this.seen.has(name)) this.seen.set(name, []);
      const timings = sub.timings_ms ?? {};
      const known = this.seen.get(name);
      known.push({ atS, timings, rate: sub.metrics?.["records-per-s-10s"] ?? 0, lag: sub.lag });
      if (known.length > KEPT) known.shift();
    }
    this.show(false);
  }

  show(redraw = true) {
    const known = this.seen.get(this.select.value) ?? [];
    const names = [...new Set(known.flatMap((one) => Object.keys(one.timings)))].sort();
    if (!names.length) return;
    if (redraw || !this.drawn || names.join() !== this.drawn) {
      this.byPhase?.end();
      this.byRate?.end();
      this.byPhase = new Chart(this.phases, names);
      this.byRate = new Chart(this.rates, ["records/s", "lag"], { second: "lag" });
      this.drawn = names.join();
      known.forEach((one) => this.put(one, names));
    } else this.put(known.at(-1), names);
    this.byPhase.draw();
    this.byRate.draw();
  }

  put(one, names) {
    this.byPhase.add(one.atS, names.map((name) => one.timings[name]));
    this.byRate.add(one.atS, [one.rate, one.lag]);
  }
}
