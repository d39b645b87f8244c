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

// While tables are being read for the first time, the list is fetched again; not under somebody's fingers.
function refresh() {
  const fleet = document.getElementById("fleet");
  if (!fleet || !Number(fleet.dataset.awaited)) {
    return;
  }
  window.setTimeout(async () => {
    if (!fleet.contains(document.activeElement)) {
      const answer = await fetch(window.location.href).catch(() => null);
      const text = answer && answer.ok ? await answer.text() : "";
      const next = text && new DOMParser().parseFromString(text, "text/html").getElementById("fleet");
      if (next) {
        fleet.replaceWith(next);
        offerSearch();
      }
    }
    refresh();
  }, 2000);
}

function offerSearch() {
  const line = document.querySelector(".find");
  if (!line) {
    return;
  }
  line.hidden = false;
  const rows = [...document.querySelectorAll(".row")];
  line.querySelector("input").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const row of rows) {
      row.hidden = !row.dataset.name.includes(wanted);
    }
    const left = rows.filter((row) => !row.hidden).length;
    line.querySelector("span").textContent = wanted ? `${left} of ${rows.length} tables` : "";
  });
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
