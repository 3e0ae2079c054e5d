// Tables that keep their rows and are filled again: rows are reused, and a cell is written only where its text has changed.

const counted = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const ordered = new Intl.Collator("en", { numeric: true });

export function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return counted.format(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// A time of ISO 8601 in UTC, to the second.
export function when(time) {
  return typeof time === "string" ? time.replace("T", " ").replace(/(\.\d+)?Z$/, "") : time;
}

export function text(element, value) {
  const wanted = shown(value);
  if (element.textContent !== wanted) element.textContent = wanted;
}

// `columns`: name, what gives the value of a row, whether it is a number, and how `wide` it is at least, in rem, where widths
// are `fixed`: then nothing moves when a text grows. `order`: by what column, when sorted by hand.
export class Table {
  constructor(element, columns, { sorts = false, empty = "nothing", fixed = false } = {}) {
    Object.assign(this, { element, columns, empty, order: null, rows: [] });
    if (fixed) this.fix();
    const head = element.createTHead().insertRow();
    for (const [number, column] of columns.entries()) {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (column.number) cell.className = "number";
      if (sorts) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = column.name;
        button.addEventListener("click", () => this.sort(number, cell));
        cell.append(button);
      } else cell.textContent = column.name;
      head.append(cell);
    }
    this.body = element.createTBody();
  }

  fix() {
    const widths = this.columns.map((column) => column.wide ?? (column.number ? 5 : 8));
    const group = document.createElement("colgroup");
    for (const width of widths) {
      const column = document.createElement("col");
      column.style.width = `${width}rem`;
      group.append(column);
    }
    this.element.prepend(group);
    this.element.classList.add("fixed");
    this.element.style.minWidth = `${widths.reduce((sum, width) => sum + width, 0)}rem`;
  }

  sort(number, cell) {
    const rises = this.order?.number === number ? !this.order.rises : !this.columns[number].number;
    this.order = { number, rises };
    for (const other of this.element.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", rises ? "ascending" : "descending");
    this.fill(this.rows);
  }

  fill(rows) {
    this.rows = rows;
    let made = rows.map((row) => this.columns.map((column) => column.of(row)));
    if (this.order) {
      const { number, rises } = this.order;
      const compared = (a, b) =>
        typeof a === "number" && typeof b === "number" ? a - b : ordered.compare(shown(a), shown(b));
      made = made.sort((a, b) => (rises ? 1 : -1) * compared(a[number], b[number]));
    }
    const lines = made.length ? made : [[this.empty]];
    while (this.body.rows.length > lines.length) this.body.deleteRow(-1);
    while (this.body.rows.length < lines.length) this.body.insertRow();
    lines.forEach((cells, at) => {
      const row = this.body.rows[at];
      while (row.cells.length > cells.length) row.deleteCell(-1);
      while (row.cells.length < cells.length) row.insertCell();
      cells.forEach((value, number) => {
        const cell = row.cells[number];
        const span = made.length ? 1 : this.columns.length;
        if (cell.colSpan !== span) cell.colSpan = span;
        cell.classList.toggle("number", Boolean(made.length && this.columns[number].number));
        text(cell, value);
      });
    });
  }
}

export function options(select, values, label = (value) => value) {
  const known = [...select.options].map((one) => one.value);
  if (known.length === values.length && known.every((one, at) => one === values[at])) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => new Option(label(value), value)));
  if (values.includes(chosen)) select.value = chosen;
}
