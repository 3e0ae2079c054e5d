// Changes ask first, with what the server says they would do.

import { shown } from "./tables.js";

async function posted(mode, what, given) {
  const answer = await fetch(`/api/${mode}/${what}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(given),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error([found.error, found.hint].filter(Boolean).join(" — "));
  return found;
}

function given(form) {
  const found = {};
  for (const [name, value] of new FormData(form)) {
    const said = value.trim();
    if (said === "") continue;
    found[name] = ["partition", "partitions", "factor", "containers"].includes(name) && /^\d+$/.test(said) ? Number(said) : said;
  }
  return found;
}

function listed(document_) {
  const list = document.createElement("dl");
  for (const [name, value] of Object.entries(document_)) {
    if (value === null || (Array.isArray(value) && !value.length)) continue;
    const term = document.createElement("dt");
    term.textContent = name.replaceAll("_", " ");
    const said = document.createElement("dd");
    if (Array.isArray(value) && typeof value[0] === "object") {
      for (const one of value.slice(0, 50)) {
        const line = document.createElement("p");
        line.textContent = Object.entries(one).map(([key, part]) => `${key.replaceAll("_", " ")} ${shown(part)}`).join(", ");
        said.append(line);
      }
      if (value.length > 50) said.append(`and ${value.length - 50} more`);
    } else said.textContent = shown(value);
    list.append(term, said);
  }
  return list;
}

export function ask(title, content, act) {
  const dialog = document.getElementById("confirm");
  const yes = document.getElementById("confirm-yes");
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-text").replaceChildren(content);
  yes.hidden = !act;
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      ask("It was refused", document.createTextNode(error.message), null);
    } finally {
      yes.disabled = false;
    }
  };
  document.getElementById("confirm-no").onclick = () => dialog.close();
  if (!dialog.open) dialog.showModal();
}

export function controls() {
  for (const form of document.querySelectorAll("form.change")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const [what, asked] = [form.dataset.what, given(form)];
      try {
        ask(`${form.querySelector("legend").textContent}?`, listed(await posted("preview", what, asked)), () => posted("change", what, asked));
      } catch (error) {
        ask("It is refused", document.createTextNode(error.message), null);
      }
    });
  }
}
