"use strict";
// Airflow shows this page in a frame that may not move the window around it. Links into Airflow's
// own pages are therefore followed by the surrounding document, which has the same origin.
function leave(href) {
  const target = new URL(href, document.baseURI).href;
  if (window.parent === window) {
    window.location.assign(target);
    return;
  }
  const link = window.parent.document.createElement("a");
  link.href = target;
  window.parent.document.body.append(link);
  link.click();
  link.remove();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    leave(link.href);
  }
});

// The list is fetched again: soon while tables are being read for the first time, and then as often as they are read
// anew. Not under somebody's fingers, and not where nobody looks.
function refresh() {
  const fleet = document.getElementById("fleet");
  if (!fleet) {
    return;
  }
  const waitS = Number(fleet.dataset.awaited) ? 2 : Number(fleet.dataset.fresh);
  window.setTimeout(async () => {
    if (!document.hidden && !fleet.contains(document.activeElement)) {
      const answer = await fetch(window.location.href).catch(() => null);
      const text = answer && answer.ok ? await answer.text() : "";
      const next = text && new DOMParser().parseFromString(text, "text/html").getElementById("fleet");
      if (next) {
        const wanted = fleet.querySelector("#find")?.value;
        fleet.replaceWith(next);
        offerSearch(wanted);
      }
      document.getElementById("stale").hidden = Boolean(next);
    }
    refresh();
  }, waitS * 1000);
}

function offerSearch(before = "") {
  const line = document.querySelector(".find");
  if (!line) {
    return;
  }
  line.hidden = false;
  const rows = [...document.querySelectorAll(".row")];
  const input = line.querySelector("input");
  const filter = () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) {
      row.hidden = !row.dataset.name.includes(wanted);
    }
    const left = rows.filter((row) => !row.hidden).length;
    line.querySelector("span").textContent = wanted ? `${left} of ${rows.length} tables` : "";
  };
  input.addEventListener("input", filter);
  input.value = before;
  filter();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    const source = document.getElementById(button.dataset.copy);
    window.getSelection().selectAllChildren(source);
    // A browser may not allow it in a frame; the text is selected then.
    const copied = await navigator.clipboard?.writeText(source.textContent).then(() => true, () => false);
    document.getElementById("copied").textContent = copied ? "Copied." : "Selected; copy it with the keyboard.";
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) {
      menu.open = false;
    }
  }
});

document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.activeElement?.closest("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

offerSearch();
refresh();
