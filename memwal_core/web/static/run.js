"use strict";
// The form of a DAG, built from its own parameters as Airflow's API describes them, and filled in for
// one table. Airflow's own form cannot be opened filled in by an address.
(() => {
  const form = document.getElementById("run");
  const fields = document.getElementById("fields");
  const result = document.getElementById("result");
  const button = form.querySelector("button");
  const dag = encodeURIComponent(form.dataset.dag);
  const filled = JSON.parse(form.dataset.filled);
  const readers = new Map();

  function make(name, properties = {}, children = []) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  }

  const newName = () => `manual__${new Date().toISOString()}_${Math.random().toString(36).slice(2, 10)}`;
  // Of one name Airflow begins one run, so a press after an answer that was lost begins no second one.
  let runName = newName();
  form.addEventListener("input", () => { runName = newName(); });

  // Returns the run; if there is one of its name, it was begun by a press before.
  async function trigger(conf) {
    const body = JSON.stringify({ dag_run_id: runName, logical_date: null, conf });
    try {
      return await ask(`dags/${dag}/dagRuns`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    } catch (error) {
      if (error.status === 409) return { dag_run_id: runName };
      if (error.status < 500) throw error;
      const unknown = "Airflow did not answer, and whether the run began is not known; press again, and it begins once";
      throw Object.assign(new Error(unknown), { isUnknown: true });
    }
  }

  function show(text, className = "") {
    result.className = className;
    result.replaceChildren(text);
  }

  async function ask(path, options) {
    const answer = await fetch(`../api/v2/${path}`, options);
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      const detail = Array.isArray(body.detail) ? body.detail.map((each) => each.msg).join("; ") : body.detail;
      throw Object.assign(new Error(detail || `Airflow answered ${answer.status}`), { status: answer.status });
    }
    return body;
  }

  const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

  // Returns the element of a field and how its value is read back.
  function field(name, schema, value) {
    const types = [schema.type ?? "string"].flat();
    const empty = types.includes("null") ? null : "";
    const readOnly = Object.hasOwn(filled, name) && name !== "regions";
    if (types.includes("boolean")) {
      const input = make("input", { type: "checkbox", name, checked: Boolean(value) });
      return [input, () => input.checked];
    }
    if (schema.enum) {
      const options = schema.enum.map((each) => make("option", { value: each, textContent: each, selected: each === value }));
      const input = make("select", { name }, options);
      return [input, () => input.value];
    }
    if (types.includes("array")) {
      const input = make("textarea", { name, rows: 3, readOnly, value: (value ?? []).join("\n") });
      return [input, () => lines(input.value)];
    }
    if (types.includes("object")) {
      const input = make("textarea", { name, rows: 3, value: JSON.stringify(value ?? {}, null, 1) });
      return [input, () => JSON.parse(input.value || "{}")];
    }
    if (types.includes("integer") || types.includes("number")) {
      const input = make("input", { type: "number", name, value: value ?? "" });
      Object.assign(input, { min: schema.minimum ?? "", max: schema.maximum ?? "" });
      return [input, () => (input.value === "" ? null : Number(input.value))];
    }
    const input = make("input", { type: "text", name, readOnly, value: value ?? "" });
    return [input, () => input.value || empty];
  }

  function add(parent, name, param) {
    const schema = param.schema ?? {};
    const [input, read] = field(name, schema, filled[name] ?? param.value);
    const id = `hint-${name}`;
    input.setAttribute("aria-describedby", id);
    readers.set(name, read);
    const title = make("span", { textContent: schema.title ?? name });
    const check = input.type === "checkbox";
    const label = make("label", { className: check ? "check" : "" }, check ? [input, " ", title] : [title, input]);
    const hint = make("small", { id, textContent: param.description ?? schema.description ?? "" });
    parent.append(make("div", {}, [label, hint]));
  }

  function build(params) {
    const sections = new Map([["", fields]]);
    for (const [name, param] of Object.entries(params)) {
      const section = param.schema?.section ?? "";
      if (!sections.has(section)) {
        const folded = make("details", {}, [make("summary", { textContent: section })]);
        folded.open = Object.entries(params).some(([other, each]) => each.schema?.section === section && Object.hasOwn(filled, other));
        sections.set(section, folded);
      }
      add(sections.get(section), name, param);
    }
    sections.delete("");
    fields.append(...sections.values());
    button.disabled = false;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    show("Triggering…");
    try {
      const conf = Object.fromEntries([...readers].map(([name, read]) => [name, read()]));
      const run = await trigger(conf);
      runName = newName();
      const href = `../dags/${dag}/runs/${encodeURIComponent(run.dag_run_id)}`;
      const link = make("a", { href, textContent: "Open the run" });
      link.dataset.airflow = "";
      show("");
      result.append("Triggered. ", link);
    } catch (error) {
      show(error.isUnknown ? error.message : `Not triggered: ${error.message}`, "danger");
    } finally {
      button.disabled = false;
    }
  });

  ask(`dags/${dag}/details`).then(
    (details) => build(details.params ?? {}),
    (error) => show(`The form cannot be shown: ${error.message}`, "danger"),
  );
})();
