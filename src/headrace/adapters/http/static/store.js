// A store by key, or its first entries, and up to where that is true.

import { Table, when } from "./tables.js";

export function store() {
  const note = document.getElementById("state-note");
  const entries = document.getElementById("entries");
  const positions = new Table(document.getElementById("positions"), [
    { name: "task", of: (one) => one.task },
    { name: "event time (UTC)", of: (one) => when(one.event_time) },
    { name: "read up to", of: (one) => Object.entries(one.positions).map(([ssp, at]) => `${ssp}: ${at}`).join(", ") },
  ]);

  async function read(path, rowsOf, empty) {
    const answer = await fetch(path);
    const found = await answer.json();
    entries.replaceChildren();
    if (!answer.ok) {
      note.textContent = [found.error, found.hint].filter(Boolean).join(" — ");
      return;
    }
    const rows = rowsOf(found);
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    new Table(entries, names.map((name) => ({ name: name.replaceAll("_", " "), of: (row) => row[name] })), { empty }).fill(rows);
    const more = found.is_whole === false ? ", and there are more" : "";
    note.textContent = `${rows.length} ${rows.length === 1 ? "entry" : "entries"}${more}`;
    document.getElementById("as-of").hidden = false;
    positions.fill(found.as_of);
  }

  const chosen = () => encodeURIComponent(document.getElementById("store").value);
  document.getElementById("state-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = document.getElementById("key").value;
    read(`/state/${chosen()}/${encodeURIComponent(key)}`, (found) => found.entries, "nothing under this key");
  });
  document.getElementById("some").addEventListener("click", () => read(`/state/${chosen()}?limit=100`, (found) => found.rows, "the store is empty"));
}
