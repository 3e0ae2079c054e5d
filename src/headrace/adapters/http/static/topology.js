// The picture of the topology, with how fast each stream is read and how far behind its readers are.

import { shown, text } from "./tables.js";

const SVG = "http://www.w3.org/2000/svg";

export async function picture(element) {
  const found = new DOMParser().parseFromString(await (await fetch("/api/picture")).text(), "image/svg+xml").documentElement;
  if (found.localName !== "svg") {
    const said = document.createElement("p");
    said.textContent = found.textContent;
    element.replaceChildren(said);
    return;
  }
  element.replaceChildren(document.importNode(found, true));
  for (const group of element.querySelectorAll("g[data-stream]")) {
    const box = group.querySelector("rect");
    const label = document.createElementNS(SVG, "text");
    label.setAttribute("class", "flow");
    label.setAttribute("x", Number(box.getAttribute("x")) + Number(box.getAttribute("width")) / 2 + 8);
    label.setAttribute("y", Number(box.getAttribute("y")) + Number(box.getAttribute("height")) + 13);
    label.setAttribute("font-size", "11");
    group.append(label);
  }
}

export function flows(element, streams) {
  const known = new Map(streams.map((one) => [one.stream, one]));
  for (const group of element.querySelectorAll("g[data-stream]")) {
    const one = known.get(group.dataset.stream);
    text(group.querySelector("text.flow"), one ? `${shown(one.records_per_s)} records/s, lag ${shown(one.lag)}` : "");
  }
}
