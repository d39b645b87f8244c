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
