// The dead letters: the newest that are open, or the newest of those that a filter takes; and how many there are.

import { Table, shown, text, when } from "./tables.js";

const columns = [
  { name: "id", of: (one) => one.id },
  { name: "failed at (UTC)", of: (one) => when(one.failed_at) },
  { name: "record's time", of: (one) => when(one.when) },
  ...["source", "operator", "reason", "key", "value"].map((name) => ({ name, of: (one) => one[name] })),
  { name: "tries", number: true, of: (one) => one.tries },
];

// What gets the letters of each answer of the server.
export function letters() {
  const table = new Table(document.getElementById("letter-table"), columns, { empty: "no dead letter" });
  const note = document.getElementById("letters-note");
  const form = document.getElementById("letters-filter");
  let asked = "";
  let last = null;
  let asking = false;

  function fill(found) {
    table.empty = found.problem ? "not known" : "no dead letter";
    table.fill(found.letters);
    const shownOf = found.letters.length < found.matching ? `the newest ${shown(found.letters.length)} of ` : "";
    const these = asked ? `${shownOf}${shown(found.matching)} of these, ${shown(found.open)} open altogether` : `${shownOf}${shown(found.open)} open`;
    text(note, found.problem ?? [these, found.why_not_whole].filter(Boolean).join("; "));
  }

  async function filtered() {
    if (asking) return;
    asking = true;
    const wanted = asked;
    try {
      const answer = await fetch(`/api/dead-letters?${wanted}`);
      const found = await answer.json();
      const problem = answer.ok ? found.problem : [found.error, found.hint].filter(Boolean).join(" — ");
      if (wanted === asked) fill(answer.ok ? found : { letters: [], matching: 0, open: 0, problem });
    } catch {
      // The page says already that the server does not answer.
    } finally {
      asking = false;
      if (wanted !== asked) show();
    }
  }

  function show() {
    if (asked) filtered();
    else if (last) fill(last);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    asked = new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value)).toString();
    show();
  });
  return (found) => {
    last = found;
    show();
  };
}
