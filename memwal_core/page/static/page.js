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

async function trigger(form) {
  const conf = { table: form.elements.table.value, dry_run: form.elements.dry_run.checked };
  if (form.elements.regions) {
    conf.regions = form.elements.regions.value.split(/\s+/).filter(Boolean);
  }
  const dag = form.dataset.dag;
  const answer = await fetch(`../api/v2/dags/${encodeURIComponent(dag)}/dagRuns`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ logical_date: null, conf }),
  });
  const body = await answer.json();
  if (!answer.ok) {
    throw new Error(typeof body.detail === "string" ? body.detail : `Airflow answered ${answer.status}`);
  }
  return `../dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(body.dag_run_id)}`;
}

const form = document.getElementById("run");
if (form) {
  const result = document.getElementById("result");
  const button = form.querySelector("button");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    result.className = "";
    result.textContent = "Triggering…";
    try {
      const link = document.createElement("a");
      link.href = await trigger(form);
      link.dataset.airflow = "";
      link.textContent = "Open the run";
      result.replaceChildren("Triggered. ", link);
    } catch (error) {
      result.className = "danger";
      result.textContent = `Not triggered: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
}
