(() => {
  "use strict";
  // Without this script the page is the same, unsorted, and a browser shows the titles of headings on hover only.
  const tip = document.createElement("div");
  tip.className = "floating";
  tip.id = "floating";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);

  let shown = null;
  const hide = () => {
    shown = null;
    tip.hidden = true;
  };
  const place = () => {
    const stop = shown.getBoundingClientRect();
    tip.hidden = stop.bottom < 0 || stop.top > window.innerHeight;
    const left = Math.min(stop.left, document.documentElement.clientWidth - tip.offsetWidth - 10);
    const below = stop.bottom + 6;
    const fits = below + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(left, 10)}px`;
    tip.style.top = `${fits ? below : Math.max(stop.top - tip.offsetHeight - 6, 4)}px`;
  };
  const show = (stop) => {
    shown = stop;
    tip.textContent = stop.dataset.def;
    place();
  };
  // What a browser would show on hover only is shown on focus too.
  const explain = (stop, titled) => {
    stop.dataset.def = titled.title;
    stop.setAttribute("aria-description", titled.title);
    titled.removeAttribute("title");
    for (const event of ["mouseenter", "focus"]) stop.addEventListener(event, () => show(stop));
    for (const event of ["mouseleave", "blur"]) stop.addEventListener(event, hide);
  };
  // A heading that the keyboard reaches is scrolled into view after its focus: the definition goes with it.
  document.addEventListener("scroll", () => shown && place(), { capture: true, passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    hide();
    if (document.activeElement.matches(".def")) document.activeElement.blur();
  });

  const words = new Intl.Collator("en", { numeric: true });
  const keyOf = (row, column) => row.cells[column].dataset.k ?? row.cells[column].textContent.trim();
  const compare = (a, b, isNumber) => (isNumber ? Number(a) - Number(b) : words.compare(a, b));

  const sort = (table, column, direction) => {
    const body = table.tBodies[0];
    const rows = table.unsorted;
    const keys = new Map(rows.map((row) => [row, keyOf(row, column)]));
    const isNumber = rows.every((row) => !Number.isNaN(Number(keys.get(row))));
    const order = rows.map((row, place) => [row, place]);
    const sign = direction === "descending" ? -1 : 1;
    if (direction !== "none") {
      order.sort(([a, i], [b, j]) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        // What is not known comes last either way.
        if (x === "" || y === "") return (x === "") - (y === "") || i - j;
        return sign * compare(x, y, isNumber) || i - j;
      });
    }
    body.append(...order.map(([row]) => row));
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      cell.setAttribute("aria-sort", place === column ? direction : "none");
    });
  };

  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
  for (const table of document.querySelectorAll("table.sortable")) {
    table.unsorted = [...table.tBodies[0].rows];
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...cell.childNodes);
      cell.append(button);
      cell.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, column, NEXT[cell.getAttribute("aria-sort")]));
      if (cell.title) explain(button, cell);
    });
  }
  for (const term of document.querySelectorAll(".term")) explain(term, term);

  // A box is a stop of the keyboard only while there is something in it to scroll to.
  const boxes = [...document.querySelectorAll(".scroll")];
  const measure = () => {
    for (const box of boxes) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("resize", measure);
  document.addEventListener("toggle", measure, true);
  measure();
})();
