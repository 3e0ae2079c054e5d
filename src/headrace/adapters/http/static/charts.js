// The last rounds of a sub-topology, each as a bar of its phases: the job keeps them, so that they are there for a page that is
// opened later. And its rate and lag, as they were seen since the page was opened.

import { shown, when } from "./tables.js";

const KEPT = 600;
const COLOURS = { read: "#3b7dd8", decode: "#5b8f99", process: "#3a9e5b", state: "#d08a1d", write: "#9561c9", commit: "#c94f4f", other: "#8a97a6" };
const HEIGHT = 210;

function styled() {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--soft").trim(), line: style.getPropertyValue("--line").trim() };
}

function axis(more) {
  const { ink, line } = styled();
  return { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, ...more };
}

const from_zero = { range: (plot, low, high) => [0, Math.max(1, high * 1.1 || 1)] };

class Chart {
  constructor(element, options) {
    const size = () => ({ width: Math.max(240, element.clientWidth), height: HEIGHT });
    this.plot = new window.uPlot({ ...size(), ...options }, options.series.map(() => []), element);
    this.resized = new ResizeObserver(() => this.plot.setSize(size()));
    this.resized.observe(element);
  }

  end() {
    this.resized.disconnect();
    this.plot.destroy();
  }
}

// `rows` of numbers named by `columns`: those behind `records` are phases. Bars are drawn from the whole down, so that each phase
// covers what is behind it.
class Rounds extends Chart {
  constructor(element, columns) {
    const phases = columns.slice(columns.indexOf("records") + 1);
    const bars = window.uPlot.paths.bars({ size: [0.8, 40] });
    const of = (name) => (at) => shown(at === null ? null : this.rows[at]?.[columns.indexOf(name)]);
    const name = (at) => (at === null ? "" : `${this.rows[at][columns.indexOf("round")]}, ${when(new Date(this.rows[at][columns.indexOf("ended_us")] / 1000).toISOString())}, ${of("records")(at)} records`);
    super(element, {
      scales: { x: { time: false, range: (plot, low, high) => [low - 0.5, Math.max(high, low + 9) + 0.5] }, y: from_zero },
      series: [
        { label: "round, end (UTC)", value: (plot, value, series, at) => name(at) },
        ...[...phases].reverse().map((phase) => ({
          label: `${phase}, ms`, fill: COLOURS[phase] ?? COLOURS.other, stroke: COLOURS[phase] ?? COLOURS.other, width: 0,
          paths: bars, points: { show: false }, value: (plot, value, series, at) => of(phase)(at),
        })),
      ],
      axes: [axis({ values: (plot, at) => at.map((one) => this.rows[one]?.[columns.indexOf("round")] ?? "") , incrs: [1, 2, 5, 10, 20] }), axis({ size: 60 })],
    });
    Object.assign(this, { phases, columns, rows: [] });
  }

  draw(rows) {
    this.rows = rows;
    const first = this.columns.indexOf("records") + 1;
    const tops = this.phases.map((phase, number) => rows.map((row) => row.slice(first, first + number + 1).reduce((sum, one) => sum + one, 0)));
    this.plot.setData([rows.map((row, at) => at), ...tops.reverse()]);
  }
}

class Rates extends Chart {
  constructor(element) {
    const line = (label, stroke, scale) => ({ label, stroke, width: 2, scale });
    super(element, {
      scales: { y: from_zero, z: from_zero },
      series: [{}, line("records/s", "#3b7dd8", "y"), line("lag", "#3a9e5b", "z")],
      axes: [axis({}), axis({ size: 60 }), axis({ scale: "z", side: 1, size: 60, grid: { show: false } })],
    });
  }

  draw(known) {
    this.plot.setData([known.map((one) => one.atS), known.map((one) => one.rate), known.map((one) => one.lag)]);
  }
}

export class Charts {
  constructor(rounds, rates, select, note) {
    Object.assign(this, { rounds, rates, select, note, seen: new Map(), drawn: "" });
    select.addEventListener("change", () => this.show());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
  }

  add(subs, atS) {
    for (const [name, sub] of Object.entries(subs)) {
      if (!this.seen.has(name)) this.seen.set(name, { last: null, known: [] });
      const mine = this.seen.get(name);
      mine.last = sub.last_rounds ?? null;
      mine.known.push({ atS, rate: sub.metrics?.["records-per-s-10s"] ?? 0, lag: sub.lag });
      if (mine.known.length > KEPT) mine.known.shift();
    }
    this.show(false);
  }

  show(redraw = true) {
    const mine = this.seen.get(this.select.value);
    if (!mine) return;
    const columns = mine.last?.columns?.includes("records") ? mine.last.columns : [];
    if (redraw || !this.byRate || columns.join() !== this.drawn) {
      this.byPhase?.end();
      this.byRate?.end();
      this.byPhase = columns.length ? new Rounds(this.rounds, columns) : null;
      this.byRate = new Rates(this.rates);
      this.drawn = columns.join();
      this.rowsDrawn = "";
    }
    const rows = mine.last?.rows ?? [];
    const newest = rows.length ? rows.at(-1).join() : "none";
    if (this.byPhase && newest !== this.rowsDrawn) {
      this.byPhase.draw(rows);
      this.rowsDrawn = newest;
    }
    this.note.textContent = rows.length ? "" : "no round yet";
    this.byRate.draw(mine.known);
  }
}
